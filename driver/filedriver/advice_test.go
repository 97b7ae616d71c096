package filedriver

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// TestUnusable_HR_F7_ADirectoryWithoutRoomIsNotOneWithoutRights: inodes may run out
// while there is space.
func TestUnusable_HR_F7_ADirectoryWithoutRoomIsNotOneWithoutRights(t *testing.T) {
	err := unusable("/d", &fs.PathError{Op: "mkdir", Path: "/d/rooms", Err: syscall.ENOSPC})
	if text := err.Error(); !strings.Contains(text, "no room for more files") || strings.Contains(text, "this user") {
		t.Error(text)
	}
}
