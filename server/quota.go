package server

import "sync"

// quota bounds how many requests wait, so that one client cannot take all the
// room there is, nor fill one queue.
type quota struct {
	perClient, perKey int

	mu      sync.Mutex
	waiting int
	clients map[string]int
	keys    map[string]int
}

func newQuota(perClient, perKey int) *quota {
	return &quota{
		perClient: perClient, perKey: perKey,
		clients: make(map[string]int), keys: make(map[string]int),
	}
}

// admit lets a request wait, for the lock in its path or for those that are named,
// each of which counts as one that waits. What it returns is called when the
// wait has ended.
func (s *Server) admit(x *Exchange, names ...string) (leave func(), err error) {
	client := x.Client()
	if len(names) == 0 {
		names = []string{x.Name}
	}
	leave = func() {
		for _, name := range names {
			s.quota.leave(client, name)
		}
	}
	for i, name := range names {
		if err := s.quota.enter(client, name); err != nil {
			names = names[:i]
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// enter counts one more; key is empty for who waits for no lock in particular.
func (q *quota) enter(client, key string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.clients[client] >= q.perClient:
		return newProblem(TooMany, "%d requests of yours wait already", q.perClient).after(retryLater)
	case key != "" && q.keys[key] >= q.perKey:
		return newProblem(TooMany, "%d requests for this lock wait already", q.perKey).after(retryLater)
	}
	q.waiting++
	q.clients[client]++
	if key != "" {
		q.keys[key]++
	}
	return nil
}

func (q *quota) leave(client, key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	less(q.clients, client)
	if key != "" {
		less(q.keys, key)
	}
}

// less counts one down, and forgets who is at zero.
func less(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

// now is how many requests wait.
func (q *quota) now() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
