package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, revision := build()
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": version, "revision": revision, "go": runtime.Version(),
				})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// versionText is what `leasehold version` and `leasehold --version` print.
func versionText() string {
	version, _ := build()
	return fmt.Sprintf("leasehold %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// release is the version that a release's build sets by the linker's -X. The Go command
// notes only what it finds out by itself.
var release string

// build tells what the Go command has noted about this binary.
func build() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return cmp.Or(release, info.Main.Version), revision
}
