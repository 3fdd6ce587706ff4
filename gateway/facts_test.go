package gateway

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

	"github.com/openai4s/hpc/scheduler"
)

func TestQueueThatForgetsFasterThanItIsAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		facts scheduler.Facts
		says  string
	}{
		"long enough":        {scheduler.Facts{MinJobAge: 8 * time.Second}, ""},
		"not said":           {scheduler.Facts{}, ""},
		"with accounting":    {scheduler.Facts{MinJobAge: 7 * time.Second, Accounting: true}, "accounting tells their end"},
		"without accounting": {scheduler.Facts{MinJobAge: 7 * time.Second}, "nothing else tells their end"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Poll = 4 * time.Second })
			var log bytes.Buffer
			r.server.log = zerolog.New(&log)
			r.server.FactsRead(tt.facts)
			r.server.FactsRead(tt.facts)
			if tt.says == "" {
				assert.Empty(t, log.String())
				return
			}
			assert.Equal(t, 1, strings.Count(log.String(), tt.says), log.String())
			assert.Contains(t, log.String(), "MinJobAge")
		})
	}
}
