package gateway

import (
	"fmt"
	"net/http"

	"github.com/openai4s/hpc/gateway/api"
)

// share is what one user has of what the site limits.
type share struct {
	live        int
	credentials int
}

// reserve holds a new workload against its owner's limits. What it takes counts from here on, so that requests at the
// same time can't pass a limit together; enlist or the returned function ends that.
func (s *Server) reserve(uid, credentials int) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.reserved[uid]
	for _, l := range s.live {
		if l.uid == uid {
			has.live++
			has.credentials += l.credentials
		}
	}
	const later = "wait for some of your workloads to end, or cancel them"
	switch most := s.cfg.MaxCredentials; {
	case s.cfg.MaxLive > 0 && has.live >= s.cfg.MaxLive:
		return nil, &api.Error{Status: http.StatusTooManyRequests, Code: "limit", Hint: later,
			Message: fmt.Sprintf("you have %d live workloads, and the site allows %d (max_live)", has.live, s.cfg.MaxLive)}
	case most > 0 && credentials > most:
		return nil, &api.Error{Status: http.StatusTooManyRequests, Code: "limit", Hint: "ask for fewer ranks or restarts",
			Message: fmt.Sprintf("this workload takes %d credentials, one a rank and start, and the site allows %d (max_credentials)", credentials, most)}
	case most > 0 && has.credentials+credentials > most:
		return nil, &api.Error{Status: http.StatusTooManyRequests, Code: "limit", Hint: later,
			Message: fmt.Sprintf("your live workloads have %d credentials, this one takes %d more, and the site allows %d (max_credentials)", has.credentials, credentials, most)}
	}
	s.book(uid, share{1, credentials})
	done := false
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !done {
			done = true
			s.book(uid, share{-1, -credentials})
		}
	}, nil
}

// book changes a user's reservations. The caller holds s.mu.
func (s *Server) book(uid int, by share) {
	has := s.reserved[uid]
	has.live += by.live
	has.credentials += by.credentials
	if has == (share{}) {
		delete(s.reserved, uid)
		return
	}
	s.reserved[uid] = has
}
