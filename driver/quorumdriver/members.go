package quorumdriver

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Processes that use different nodes do not exclude each other: a majority of three and a
// majority of five may have no node in common, and a server that is named twice has two
// votes. So the mark of a node contains the size of its quorum and a unique part. Each
// process compares the marks of its nodes before it returns its first answer, and then
// until it has read all marks.

// members is the result so far of checking that all processes use the same nodes.
type members struct {
	mu       sync.Mutex
	compared set       // nodes whose marks have been read
	looked   time.Time // last time
	wrong    error     // the contradiction, if any
}

// markName returns the text of a new mark.
func (s *Driver) markName() string { return fmt.Sprintf("%d.%s", len(s.nodes), rand.Text()) }

// checkMembers returns an error that matches [driver.ErrInvalid] if the marks contradict
// this process's list of nodes. It is called when a majority has answered, and reads
// marks until those of a majority are known.
func (s *Driver) checkMembers(ctx context.Context) error {
	if s.guarded() == 0 {
		return nil
	}
	known, wrong := s.members.state()
	enough := min(s.need, s.guarded().size())
	switch {
	case wrong != nil:
		return wrong
	case known.size() < enough:
		return s.compare(s.readMarks(ctx, func(r *round[marked], m *marks) bool {
			return m.marked() < enough || r.worthWaiting()
		}))
	case known != s.guarded() && s.members.dueForCheck():
		s.background(func() { _ = s.compare(s.allMarks(s.open)) })
	}
	return nil
}

// knownContradiction returns the contradiction that was found, and looks again now and
// then.
func (s *Driver) knownContradiction(ctx context.Context) error {
	_, wrong := s.members.state()
	if wrong == nil || !s.members.dueForCheck() {
		return wrong
	}
	return s.compare(s.allMarks(ctx))
}

// state returns the nodes whose marks have been read, and the contradiction.
func (m *members) state() (known set, wrong error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.compared, m.wrong
}

// dueForCheck reports whether it is time to look again, and if so counts a look.
func (m *members) dueForCheck() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.looked) < markCheckInterval {
		return false
	}
	m.looked = time.Now()
	return true
}

// compare compares marks and stores the outcome. It ignores marks without a size.
func (s *Driver) compare(m marks) error {
	wrong := s.contradiction(m.names)
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	s.members.wrong, s.members.looked = wrong, time.Now()
	for i := range m.names {
		s.members.compared = s.members.compared.with(i)
	}
	return wrong
}

// contradiction returns how the marks, by the index of their node, contradict this
// process's list of nodes.
func (s *Driver) contradiction(names map[int]string) error {
	owner := make(map[string]int)
	for _, i := range slices.Sorted(maps.Keys(names)) {
		size, _, _ := strings.Cut(names[i], ".")
		n, err := strconv.Atoi(size)
		if err != nil {
			continue
		}
		if n != len(s.nodes) {
			return fmt.Errorf("%s is one of %d nodes of a quorum, but %d are configured here: all processes must name the same nodes; to change them, end all processes and remove the marks: %w", s.nodes[i].name, n, len(s.nodes), driver.ErrInvalid)
		}
		if other, ok := owner[names[i]]; ok {
			return fmt.Errorf("%s is the same store as %s: it would have two votes: %w", s.nodes[i].name, s.nodes[other].name, driver.ErrInvalid)
		}
		owner[names[i]] = i
	}
	return nil
}
