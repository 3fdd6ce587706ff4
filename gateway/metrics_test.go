package gateway

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// TestMetricsLint: names and help follow the conventions, and a scrape holds what it should.
func TestMetricsLint(t *testing.T) {
	s := newRig(t).server
	s.counters.reject("signature")
	problems, err := testutil.CollectAndLint(newMetrics(s))
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, 6, testutil.CollectAndCount(newMetrics(s), "openai4s_handshakes_total"))
	require.Equal(t, 1, testutil.CollectAndCount(newMetrics(s), "openai4s_admitting"))
}
