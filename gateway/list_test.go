package gateway

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/gateway/api"
	"github.com/openai4s/hpc/scheduler"
)

// Live workloads come before those that are over where there isn't place for all; each list is newest first.
func TestNewest(t *testing.T) {
	// In letters: a live workload is a capital one; made in the order of the alphabet.
	entries := func(text string) (found []entry) {
		for _, c := range text {
			lower := strings.ToLower(string(c))
			found = append(found, entry{id: scheduler.WorkloadID(string(c)), created: int64(lower[0]), over: lower == string(c)})
		}
		return found
	}
	for _, c := range []struct {
		all   string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"", 3, ""},
		{"aBcD", 0, "DcBa"},
		{"aBcD", 4, "DcBa"},
		{"aBcD", 3, "DcB"},
		{"DcBa", 2, "DB"},
		{"BaDc", 1, "D"},
		{"abcd", 2, "dc"},
		{"ABCD", 2, "DC"},
		{"ABCD", math.MaxInt, "DCBA"},
	} {
		var got strings.Builder
		for _, e := range newest(entries(c.all), c.limit) {
			got.WriteString(string(e.id))
		}
		assert.Equal(t, c.want, got.String(), "%s, at most %d", c.all, c.limit)
	}

	var many []entry
	for i := range listed + 7 {
		many = append(many, entry{created: int64(i), over: true}, entry{created: int64(i)})
	}
	assert.Len(t, newest(many, 0), listed+listed+7, "all live ones, and the last that are over")
}

func TestListKeepsToItsLimit(t *testing.T) {
	r := newRig(t)
	c := r.control()
	var made []scheduler.WorkloadID
	for range 3 {
		m, err := c.Create(t.Context(), request(1))
		require.NoError(t, err)
		made = append(made, m.Workload.ID)
	}
	_, err := c.Report(t.Context(), made[2], api.Submission{Outcome: scheduler.Rejected, Text: "no"})
	require.NoError(t, err)
	for limit, want := range [][]scheduler.WorkloadID{{made[2], made[1], made[0]}, {made[1]}, {made[1], made[0]}, {made[2], made[1], made[0]}} {
		list, err := c.List(t.Context(), api.Which{Limit: limit})
		require.NoError(t, err)
		var got []scheduler.WorkloadID
		for _, w := range list.Workloads {
			got = append(got, w.ID)
		}
		assert.Equal(t, want, got, fmt.Sprint("at most ", limit))
		assert.Equal(t, 3, list.Total)
	}
	list, err := c.List(t.Context(), api.Which{Job: "none"})
	require.NoError(t, err)
	assert.Zero(t, list.Total)
	assert.NotNil(t, list.Workloads)
}
