package step_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMarkerThatIsNotConfirmedChangesNothing(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*store, http.ResponseWriter, *http.Request) bool{
		"503":        answer(503, "SlowDown"),
		"403":        answer(403, "AccessDenied"),
		"404":        answer(404, ""),
		"cut":        raw("", false),
		"redirected": answer(307, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a", data: "1"})
			j.store.faults = []fault{named(markerName, do)}
			require.Equal(t, 0, j.run(), j.output())
			require.Contains(t, j.stderr.String(), "could not be confirmed")
			require.Equal(t, 1, count(j.store.requests("upload"), markerName), "written exactly once")
		})
	}
}

func TestMarkerOfAFailureThatIsNotConfirmedKeepsTheCode(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1", pin: doc{"sha256": strings.Repeat("0", 64)}})
	j.store.faults = []fault{named(markerName, answer(503, "SlowDown"))}
	require.Equal(t, 10, j.run(), j.output())
	require.Equal(t, 1, count(j.store.requests("upload"), markerName))
}

func TestMarkersAnswerMayTakeTwelveSeconds(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.store.faults = []fault{named(markerName, hold(12*time.Second))}
	j.succeeded()
	require.NotContains(t, j.stderr.String(), "could not be confirmed")
}

func TestMarkersDeadlineIsOfElapsedTime(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*store, http.ResponseWriter, *http.Request) bool{
		"a store that dribbles its answer":  dribble("HTTP/1.1 200 OK\r\nX: ", time.Second),
		"a store that dribbles its refusal": dribble("HTTP/1.1 503 Slow\r\nContent-Length: 1000\r\n\r\n", time.Second),
		"a store that never answers":        never,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a", data: "1"})
			j.store.faults = []fault{named(markerName, do)}
			require.Equal(t, 0, j.start().wait(28*time.Second), j.output())
			require.Contains(t, j.stderr.String(), "could not be confirmed")
			require.Equal(t, 1, count(j.store.requests("upload"), markerName))
		})
	}
}

func TestMarkerOver8MiBIsNotComposed(t *testing.T) {
	t.Parallel()
	var inputs []in
	for i := range 45 {
		inputs = append(inputs, in{name: fmt.Sprint("in", i), data: "x", pin: doc{"relpath": strings.Repeat("x", 100_000) + fmt.Sprintf("/%d", i)}})
	}
	j := newJob(t, inputs...)
	require.Equal(t, 10, j.run(), "the work was finished")
	require.NotContains(t, j.store.requests("upload"), markerName)
	require.Contains(t, j.stderr.String(), "8388608")
	require.Contains(t, j.store.acceptedNames(), "result.json")
}

func TestMarkersErrorHasAtMost500CharactersAndNoQuery(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: strings.Repeat("日", 700), data: "x", pin: doc{"sha256": nil}})
	text := j.failed(10)
	require.Len(t, []rune(text), 500)
}

func TestNameThatIsAURLWithAQueryIsCut(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "q", data: "x", pin: doc{"sha256": nil, "relpath": "s3:/bucket", "name": ""}},
		in{name: "r", data: "x", pin: doc{"sha256": nil}})
	j.secrets = []string{"token=verysecret"}
	j.inputs[0].pin["relpath"] = "see HTTPS:/" // a relpath can't hold //: the port can
	j.inputs[0].pin["port"] = "s3://bucket/key?token=verysecret#x"
	j.failed(10)
}
