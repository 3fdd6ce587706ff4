package site

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const docsExample = "../docs/site.example.toml"

func TestDocsExampleLoads(t *testing.T) {
	s, err := load(docsExample, env(), "")
	require.NoError(t, err)
	for _, f := range s.Lint() {
		assert.Equal(t, SeverityNote, f.Severity, "%v", f)
	}
	g := s.Gateway
	g.Listen, g.Advertise, g.Admins, g.ControlPins = "", nil, nil, nil
	assert.Equal(t, defaultGateway(slurm), g, "the example shows the defaults")
	bare, err := load(write(t, slurmHead+profileP), env(), "")
	require.NoError(t, err)
	assert.Equal(t, []string{bare.Name, bare.JobPrefix, bare.RuntimeDir, bare.Agent}, []string{s.Name, s.JobPrefix, s.RuntimeDir, s.Agent})
	assert.Equal(t, time.Hour, s.Profiles["default"].Walltime)
	assert.Equal(t, 640, s.HandshakeBound())
}

func TestDocsExampleNamesEveryKey(t *testing.T) {
	text, err := os.ReadFile(docsExample)
	require.NoError(t, err)
	for _, raw := range []any{rawSite{}, rawGateway{}, rawProfile{}} {
		for _, key := range tags(raw) {
			assert.Regexp(t, regexp.MustCompile(`(?m)^(# )?`+key+` = `), string(text))
		}
	}
}

func TestBoundOfExactlyTheWidest(t *testing.T) {
	s, err := load(write(t, slurmHead+"[gateway]\npending_handshakes = 512\n[profiles.p]\nmax_nodes = 64\nmax_ranks_per_node = 8\n"), env(), "")
	require.NoError(t, err)
	assert.Equal(t, 512, s.HandshakeBound())
}
