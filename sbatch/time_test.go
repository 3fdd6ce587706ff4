package sbatch

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCase19SlurmTime(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second:                     "0-00:01:00",
		time.Minute:                     "0-00:01:00",
		time.Minute + time.Nanosecond:   "0-00:02:00",
		65 * time.Minute:                "0-01:05:00",
		24 * time.Hour:                  "1-00:00:00",
		30*24*time.Hour + 1*time.Second: "30-00:01:00",
	} {
		require.Equal(t, want, SlurmTime(d), d.String())
	}
	form := regexp.MustCompile(`^(\d+)-(\d\d):(\d\d):(\d\d)$`)
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(2000*24*time.Hour)).Draw(t, "d"))
		m := form.FindStringSubmatch(SlurmTime(d))
		require.NotNil(t, m, SlurmTime(d))
		var n [4]time.Duration
		for i := range n {
			v, err := strconv.Atoi(m[i+1])
			require.NoError(t, err)
			n[i] = time.Duration(v)
		}
		require.Less(t, n[1], time.Duration(24))
		require.Less(t, n[2], time.Duration(60))
		back := n[0]*24*time.Hour + n[1]*time.Hour + n[2]*time.Minute + n[3]*time.Second
		require.GreaterOrEqual(t, back, d, "no second is lost")
		require.Less(t, back-d, time.Minute)
	})
}
