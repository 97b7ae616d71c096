package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// server is a redis-server of the benchmark's own: loopback TCP, without
// persistence.
type server struct {
	addr  string
	cmd   *exec.Cmd
	dir   string
	admin *redis.Client
}

func startServer(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		return nil, err
	}
	host, port, err := redistest.FreeAddress()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("redis-server", "--port", strconv.Itoa(port), "--bind", host,
		"--save", "", "--appendonly", "no", "--dir", dir, "--logfile", "redis.log")
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	s := &server{addr: net.JoinHostPort(host, strconv.Itoa(port)), cmd: cmd, dir: dir}
	s.admin = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	for range 500 {
		if err = s.admin.Ping(ctx).Err(); err == nil {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.close()
	return nil, fmt.Errorf("redis-server does not answer: %w", err)
}

func (s *server) close() {
	_ = s.admin.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// clear removes the data of an experiment, and resets the server's counts.
func (s *server) clear(ctx context.Context) error {
	if err := s.admin.FlushAll(ctx).Err(); err != nil {
		return err
	}
	return s.admin.ConfigResetStat(ctx).Err()
}

// version returns the server's version.
func (s *server) version(ctx context.Context) string {
	fields, err := s.info(ctx, "server")
	if err != nil {
		return "?"
	}
	return fields["redis_version"]
}

func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.admin.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// load is the work of the server so far.
type load struct {
	calls, usec map[string]float64 // by command
	cpu         time.Duration
}

func (s *server) load(ctx context.Context) (load, error) {
	l := load{calls: make(map[string]float64), usec: make(map[string]float64)}
	stats, err := s.info(ctx, "commandstats")
	if err != nil {
		return l, err
	}
	for name, text := range stats {
		var calls, usec float64
		if _, err := fmt.Sscanf(text, "calls=%f,usec=%f", &calls, &usec); err == nil {
			name = strings.TrimPrefix(name, "cmdstat_")
			l.calls[name], l.usec[name] = calls, usec
		}
	}
	cpu, err := s.info(ctx, "cpu")
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, _ := strconv.ParseFloat(cpu[name], 64)
		l.cpu += time.Duration(seconds * float64(time.Second))
	}
	return l, err
}

// since returns how many of the commands came from clients after before, and
// how many microseconds they took, including all commands in their scripts.
func (l load) since(before load, wire []string) (calls, usec float64) {
	for _, name := range wire {
		calls += l.calls[name] - before.calls[name]
		usec += l.usec[name] - before.usec[name]
	}
	return calls, usec
}
