package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
)

func TestConnectionsAreCountedByUser(t *testing.T) {
	c := newConnections(0)
	assert.Equal(t, waitingUsers, c.most)
	c = newConnections(1000)
	assert.Equal(t, 1000+spareConnections, c.most)

	c.most = 2
	ends := make([]net.Conn, 4)
	for i := range ends {
		var far net.Conn
		ends[i], far = net.Pipe()
		defer far.Close()
		defer ends[i].Close()
	}
	assert.False(t, c.take(ends[0], alice))
	assert.False(t, c.take(ends[1], alice))
	assert.True(t, c.take(ends[2], alice))
	assert.False(t, c.take(ends[3], bob), "another user's don't count")
	for _, state := range []http.ConnState{http.StateActive, http.StateIdle} {
		c.state(ends[0], state)
	}
	assert.Equal(t, 3, c.byUser[alice])
	for range 2 { // once each
		c.state(ends[0], http.StateClosed)
		c.state(ends[2], http.StateHijacked)
	}
	assert.Equal(t, map[int]int{alice: 1, bob: 1}, c.byUser)
	c.state(ends[1], http.StateClosed)
	c.state(ends[3], http.StateClosed)
	assert.Empty(t, c.byUser)
	assert.Empty(t, c.of)
}

// One user's connections end where others' begin to matter: the next command is told, and what comes then is closed.
func TestTooManyConnections(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxLive = 1 })
	path := filepath.Join(t.TempDir(), "c.sock")
	_, dial := r.controlAt(path)
	count := func() int {
		r.server.open.mu.Lock()
		defer r.server.open.mu.Unlock()
		return len(r.server.open.of)
	}
	var held []net.Conn
	for count() < r.server.open.most {
		n := count()
		held = append(held, dial())
		r.eventually("the connection to be counted", func() bool { return count() > n })
	}
	_, _, err := api.Dial(t.Context(), path)
	var refused *api.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, http.StatusTooManyRequests, refused.Status)
	assert.Contains(t, refused.Message, "over 257 connections")
	assert.NotEmpty(t, refused.Hint)
	assert.Equal(t, "limit", r.records("refused")[0]["code"])

	closed := false
	for range 3 * tellCrowded {
		conn := dial()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			closed = true
			break
		}
	}
	assert.True(t, closed, "unanswered")

	for _, conn := range held[:len(held)/2] {
		conn.Close()
	}
	r.eventually("the others to be gone", func() bool { return count() < r.server.open.most-tellCrowded })
	c, _, err := api.Dial(t.Context(), path)
	require.NoError(t, err)
	c.Close()
}
