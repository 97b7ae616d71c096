package session

import "sync"

// local are the open sessions of this process.
var local struct {
	mu       sync.Mutex
	sessions map[*Session]struct{}
}

// enroll has EndLocal find the leases of s until it is closed.
func (s *Session) enroll() {
	local.mu.Lock()
	defer local.mu.Unlock()
	if local.sessions == nil {
		local.sessions = make(map[*Session]struct{})
	}
	local.sessions[s] = struct{}{}
}

func (s *Session) resign() {
	local.mu.Lock()
	defer local.mu.Unlock()
	delete(local.sessions, s)
}

// EndLocal ends the lease with this id, whichever session of this process holds it,
// because of cause: somebody knows that the store has it no longer.
func EndLocal(key, id string, cause error) {
	if h := localHold(key, id); h != nil {
		h.over(cause)
	}
}

func localHold(key, id string) *Hold {
	local.mu.Lock()
	defer local.mu.Unlock()
	for s := range local.sessions {
		if h := s.held(key, id); h != nil {
			return h
		}
	}
	return nil
}
