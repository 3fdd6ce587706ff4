package fakepbs

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// tick is how often the server looks after its jobs.
const tick = 10 * time.Millisecond

// server holds a cluster's jobs and runs them.
type server struct {
	dir  string
	born time.Time

	mu      sync.Mutex
	config  Config
	jobs    []*job
	lastNum int
	down    map[string]bool      // lost hosts
	asked   map[string]time.Time // of qstat, by user
}

// serve runs a server until its standard input ends, then ends everything it started. Its argument is the folder.
func serve(args []string) int {
	if len(args) != 1 {
		return fault(os.ErrInvalid)
	}
	dir := args[0]
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return fault(err)
	}
	s := &server{dir: dir, born: time.Now(), lastNum: -1, down: map[string]bool{}, asked: map[string]time.Time{}}
	if err := json.Unmarshal(text, &s.config); err != nil {
		return fault(err)
	}
	for _, sub := range []string{"jobs", "aux", "spool"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return fault(err)
		}
	}
	listener, err := net.Listen("unix", SocketPath(dir))
	if err != nil {
		return fault(err)
	}
	if err := os.Chmod(SocketPath(dir), 0o666); err != nil { // every user submits
		return fault(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the end of whoever started us
		stop()
		listener.Close()
	}()
	go s.look(ctx)
	for {
		conn, err := listener.Accept()
		if err != nil {
			break
		}
		go s.handle(conn)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		endAll(j.cookie)
	}
	return 0
}

func (s *server) look(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s.mu.Lock()
			s.advance(now)
			s.mu.Unlock()
		}
	}
}

func (s *server) handle(conn net.Conn) {
	defer conn.Close()
	var req request
	if err := json.NewDecoder(conn).Decode(&req); err != nil {
		return
	}
	rep, wait := s.answer(req)
	if wait != nil {
		code, told := <-wait
		if !told {
			return
		}
		rep.Code = code
	}
	_ = json.NewEncoder(conn).Encode(rep) // a caller that went away wants nothing
}

// answer runs a command. The channel, if there is one, gives the exit code later.
func (s *server) answer(req request) (reply, <-chan int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case req.Config != nil:
		s.config = *req.Config
		return reply{}, nil
	case req.Lose != "":
		s.lose(req.Lose)
		return reply{}, nil
	case req.Return != "":
		delete(s.down, req.Return)
		return reply{}, nil
	case slices.Contains(req.Args, "--version"):
		if s.config.Torque {
			return reply{Stderr: []byte("Version: 6.1.2\nCommit: 661e092552de43a785c15d39a3634a541d86898e\n")}, nil
		}
		return reply{Stdout: []byte("pbs_version = " + cmp.Or(s.config.Version, version) + "\n")}, nil
	case req.Name == "pbs_tmrsh" || req.Name == "pbsdsh": // they talk to the host they are on
		return s.spawn(req)
	case s.config.Down:
		return unreachable(req.Name, req.Args, "Connection refused"), nil
	case s.config.Stall > 0:
		r := unreachable(req.Name, req.Args, "Connection timed out")
		r.Wait = s.config.Stall
		return r, nil
	}
	switch req.Name {
	case "qsub":
		return s.qsub(req), nil
	case "qstat":
		r := s.qstat(req)
		if now := time.Now(); s.config.PauseQstat {
			if now.Sub(s.asked[req.User]) < time.Second {
				r.Wait = 200 * time.Millisecond
			}
			s.asked[req.User] = now
		}
		return r, nil
	case "qselect":
		return s.qselect(req), nil
	case "qdel":
		return s.qdel(req), nil
	case "pbsnodes":
		return s.pbsnodes(req), nil
	}
	return reply{Stderr: []byte(req.Name + ": no such command\n"), Code: 127}, nil
}
