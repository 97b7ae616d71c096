package cli

import (
	"cmp"
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
			described := map[string]string{"version": version, "revision": revision, "go": runtime.Version()}
			return g.printResult(cmd.OutOrStdout(), described, versionText())
		},
	}
}

// versionText returns the output of `leasehold version` and `leasehold --version`.
func versionText() string {
	version, _ := build()
	return fmt.Sprintf("leasehold %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// release is the version that the build of a release sets by the linker's -X. Without it, the
// binary has only the information that the Go command records.
var release string

// build returns the information that the Go command has recorded in this binary.
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
