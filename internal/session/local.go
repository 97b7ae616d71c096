package session

import "sync"

// local holds the open sessions of this process.
var local struct {
	mu       sync.Mutex
	sessions map[*Session]struct{}
}

// enroll makes the leases of s visible to EndLocal until resign.
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

// EndLocal ends the lease with this key and id with cause, in any session of this
// process. The caller knows that the store no longer has the lease.
func EndLocal(key, id string, cause error) {
	if h := localHold(key, id); h != nil {
		h.endWith(cause, false)
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
