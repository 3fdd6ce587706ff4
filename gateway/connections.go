package gateway

import (
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/openai4s/hpc/gateway/api"
)

const (
	// spareConnections is how many control connections a user may have beyond one for each workload that may live: a
	// command that waits keeps one.
	spareConnections = 256
	// tellCrowded is how many more are told so; what comes then is closed unanswered.
	tellCrowded = 32
	// waitingUsers is the bound where live workloads have none.
	waitingUsers = 4096
)

// connections counts each user's control connections, so that nobody takes the descriptors that ranks need.
type connections struct {
	most int

	mu     sync.Mutex
	of     map[net.Conn]int // uid
	byUser map[int]int
}

func newConnections(maxLive int) *connections {
	most := spareConnections + maxLive
	if maxLive <= 0 {
		most = waitingUsers
	}
	return &connections{most: most, of: map[net.Conn]int{}, byUser: map[int]int{}}
}

// take counts a connection; crowded is one too many. It closes those beyond all bounds.
func (c *connections) take(conn net.Conn, uid int) (crowded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[conn] = uid
	c.byUser[uid]++
	has := c.byUser[uid]
	if has > c.most+tellCrowded {
		conn.Close()
	}
	return has > c.most
}

// state is told what becomes of a connection.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, counted := c.of[conn]
	if !counted {
		return
	}
	delete(c.of, conn)
	if c.byUser[uid]--; c.byUser[uid] == 0 {
		delete(c.byUser, uid)
	}
}

func (c *connections) refusal() *api.Error {
	return &api.Error{Status: http.StatusTooManyRequests, Code: "limit", Hint: "end some of your commands that wait: one `openai4s list` shows all your workloads",
		Message: fmt.Sprintf("you have over %d connections to the gateway, one a command", c.most)}
}
