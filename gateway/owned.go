package gateway

import (
	"net"
	"time"
)

// stopWait bounds how long Stop waits for what was under way.
const stopWait = 5 * time.Second

// own takes a connection into the gateway's care, as one that is shaking hands; false once the gateway is stopped.
func (s *Server) own(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.conns[c] = false
	s.serving.Add(1)
	return true
}

// joins marks a connection as a rank's; false once the gateway is stopped.
func (s *Server) joins(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.conns[c] = true
	return true
}

func (s *Server) disown(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.serving.Done()
}

func (s *Server) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// reopen lets a gateway that was stopped take connections again.
func (s *Server) reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = false
}

// Stop closes every connection that the gateway owns, handshakes first, admits nothing more and waits for what is under
// way, at most 5 s. What was admitted is in the store; agents come back to whoever serves it next.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	var handshakes, ranks []net.Conn
	for c, joined := range s.conns {
		if joined {
			ranks = append(ranks, c)
		} else {
			handshakes = append(handshakes, c)
		}
	}
	s.mu.Unlock()
	for _, c := range append(handshakes, ranks...) {
		c.Close()
	}
	over := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(stopWait):
		s.log.Warn().Dur("waited", stopWait).Msg("stopped while connections were still being ended")
	}
}
