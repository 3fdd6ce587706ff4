//go:build live

package live_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// TestCase39AddressesInOrder: names that only one side knows, and a port where nobody listens, stand before the good
// address.
func TestCase39AddressesInOrder(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Advertise: []string{"no-such-host.invalid:%s", "127.0.0.1:9", "127.0.0.1:%s"}})
	run(t, r.Alice(t), rig.Shell(4, "true", ""))
}

// TestCase42GivingUpIsClear: no address answers; the job's own output says what each of them said, and the job ends.
func TestCase42GivingUpIsClear(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Advertise: []string{"no-such-host.invalid:%s", "127.0.0.1:9"}, Gateway: `dial_timeout = "5s"`})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(2, "true", ""))
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "FAILED", w.Phase(), "%s", w)
	output := alice.Read(t, w.Text("output"))
	for _, word := range []string{"gave up after 5s", "127.0.0.1:9: ", "connection refused", "no-such-host.invalid"} {
		require.Contains(t, output, word)
	}
	require.Equal(t, "FAILED", controller(t, shared, w.Text("job", "id"))["JobState"])
}

// TestCase43ProxiesAreIgnored: the node's environment has a proxy for everything.
func TestCase43ProxiesAreIgnored(t *testing.T) {
	t.Parallel()
	prolog := wrapper(t, "prolog", `for v in http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; do echo "export $v=http://127.0.0.1:9"; done`)
	own := cluster.Up(t, cluster.Options{Nodes: 2, Set: []string{"TaskProlog=" + prolog}})
	r := rig.New(t, rig.Options{Cluster: own})
	_, output := run(t, r.Alice(t), rig.Shell(2, "echo $https_proxy", ""))
	require.Equal(t, "http://127.0.0.1:9\nhttp://127.0.0.1:9\n", output, "the proxies were there")
}

// TestCase44IPv6: literals with colons in them.
func TestCase44IPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 on its loopback: %v", err)
	}
	l.Close()
	r := rig.New(t, rig.Options{Cluster: shared, Host: "::1"})
	_, output := run(t, r.Alice(t), rig.Shell(2, "echo $MASTER_ADDR", ""))
	require.Equal(t, "::1\n::1\n", output)
}
