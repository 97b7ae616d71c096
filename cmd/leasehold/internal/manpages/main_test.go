package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pageOf returns a page as it is written with the given SOURCE_DATE_EPOCH.
func pageOf(t *testing.T, name, epoch string) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", epoch)
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "man", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPages_ShowListsAndFlagsAsHelpDoes(t *testing.T) {
	text := pageOf(t, "leasehold-run.1", "")
	list := regexp.MustCompile(`(?s)\n\.EX\n(.*?)\.EE\n`).FindStringSubmatch(text)
	if list == nil || !regexp.MustCompile(`(?m)^  LEASEHOLD\\?_KEY +name of the lock$`).MatchString(list[1]) {
		t.Errorf("the variables are not shown as a list: %q", list)
	}
	for _, flag := range []string{
		"\\fB--store\\fP=\\fIURL\\fP\n", "\\fB-w\\fP, \\fB--wait\\fP=\\fIduration\\fP\n",
		"\\fB-n\\fP, \\fB--nonblock\\fP\n", "(default 30s)\n",
	} {
		if !strings.Contains(text, flag) {
			t.Errorf("%q is missing in %s", flag, text)
		}
	}
}

func TestPages_BearTheirNameAndTheDayOfTheReleaseOrNone(t *testing.T) {
	for epoch, want := range map[string]string{
		"":           `.TH "LEASEHOLD" "1" "" "Leasehold" "Leasehold"`,
		"1790000000": `.TH "LEASEHOLD" "1" "Sep 2026" "Leasehold" "Leasehold"`,
	} {
		if text := pageOf(t, "leasehold.1", epoch); !strings.Contains(text, want+"\n") {
			t.Errorf("SOURCE_DATE_EPOCH %q: want %s, got %s", epoch, want, text[:min(len(text), 80)])
		}
	}
	if text := pageOf(t, "leasehold-run.1", ""); !strings.Contains(text, `.TH "LEASEHOLD-RUN" "1"`) {
		t.Errorf("the page of run has a wrong title: %s", text[:min(len(text), 80)])
	}
	if again := pageOf(t, "leasehold.1", ""); again != pageOf(t, "leasehold.1", "") {
		t.Error("two builds of one source differ")
	}
}
