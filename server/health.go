package server

import "net/http"

func healthRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: "/health", Operation: "health",
			Summary: "Tell that the service runs", Success: []int{http.StatusOK}, handle: (*Server).health,
		},
	}
}

// health answers byte for byte what its clients expect.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"status":"ok","service":"distributed-lock"}`))
	return nil
}
