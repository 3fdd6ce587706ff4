package step_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rotating puts the next generation in place when request n of a kind arrives, and lets the store accept only that.
func rotating(j *job, kind string, n int) fault {
	return on(kind, n, func(s *store, _ http.ResponseWriter, _ *http.Request) bool {
		j.rotate(time.Hour)
		s.only(j.generation)
		return false
	})
}

func TestThreeGenerationsEachRefusingTheOneBefore(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"}, in{name: "c", data: "3"})
	j.store.faults = []fault{rotating(j, "input", 1), rotating(j, "upload", 2)}
	j.succeeded()
	require.Equal(t, 3, j.generation)
	byName := map[string]int{}
	for _, u := range j.store.accepted() {
		byName[u.name] = u.generation
	}
	require.Equal(t, map[string]int{"outputs/a": 2, "outputs/b": 3, "outputs/c": 3, "result.json": 3, markerName: 3}, byName)
	require.Len(t, j.store.rejections, 2, "each refusal cost one repetition: %v", j.store.rejections)
	require.Equal(t, []string{"a", "a", "b", "c"}, j.store.requests("input"))
}

func TestExpiredAndNotRotatedIsTransientAfterOneAttempt(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"manifest", "input", "upload"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a", data: "1"})
			j.store.faults = []fault{on(kind, 1, answer(403, "AccessDenied"))}
			j.failed(1)
			switch kind {
			case "upload":
				require.Equal(t, 1, count(j.store.requests("upload"), "outputs/a"))
			default:
				require.Len(t, j.store.requests(kind), 1)
			}
		})
	}
}

func TestExpiredRotatedAndRefusedAgainIsTransientAfterTwoAttempts(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"manifest", "input", "upload"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a", data: "1"})
			refuse := func(s *store, w http.ResponseWriter, r *http.Request) bool {
				j.rotate(time.Hour)
				return answer(403, "AccessDenied")(s, w, r)
			}
			j.store.faults = []fault{on(kind, 1, refuse), on(kind, 2, refuse)}
			j.failed(1)
			names := map[string]string{"manifest": "invocation.json", "input": "a", "upload": "outputs/a"}
			require.Equal(t, 2, count(j.store.requests(kind), names[kind]))
		})
	}
}

func TestOnlyExpiryIsRepeated(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*store, http.ResponseWriter, *http.Request) bool{
		"503":       answer(503, "SlowDown"),
		"500":       answer(500, ""),
		"cut":       raw("", false),
		"404":       answer(404, "NoSuchKey"),
		"plain 403": answer(403, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a", data: "1"})
			j.store.faults = []fault{on("upload", 1, func(s *store, w http.ResponseWriter, r *http.Request) bool {
				j.rotate(time.Hour) // there would be another envelope to try
				return do(s, w, r)
			})}
			require.NotEqual(t, 0, j.run())
			require.Equal(t, 1, count(j.store.requests("upload"), "outputs/a"))
		})
	}
}

func TestEnvelopeIsReadAgainBeforeItExpires(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"})
	j.life = 4 * time.Second // within the margin of 5 s from the start
	j.store.faults = []fault{on("input", 1, func(s *store, _ http.ResponseWriter, _ *http.Request) bool {
		j.rotate(time.Hour)
		return false
	})}
	j.succeeded()
	require.Empty(t, j.store.rejections)
	for _, u := range j.store.accepted() {
		require.Equal(t, 2, u.generation, u.name)
	}
}

func TestEnvelopeThatIsGoodIsNotReadAgainExceptForTheMarker(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"})
	j.store.faults = []fault{on("input", 1, func(s *store, _ http.ResponseWriter, _ *http.Request) bool {
		j.rotate(time.Hour)
		return false
	})}
	j.succeeded()
	for _, u := range j.store.accepted() {
		require.Equal(t, u.name == markerName, u.generation == 2, "%s was written with generation %d", u.name, u.generation)
	}
}

func TestReadHeldPastTheExpiryIsFinishedAndTheRestUsesTheFreshEnvelope(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"})
	j.life = 6 * time.Second
	j.store.faults = []fault{
		on("input", 1, func(s *store, w http.ResponseWriter, r *http.Request) bool {
			j.rotate(time.Hour)
			hold(12*time.Second)(s, w, r) // section 15: a read may be silent for longer than this
			return false
		}),
		on("upload", 1, func(s *store, _ http.ResponseWriter, _ *http.Request) bool { s.only(2); return false }),
	}
	j.succeeded()
	require.Empty(t, j.store.rejections)
}

func TestVanishedEnvelopeStopsTheWorkButNotTheMarker(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"})
	j.life = time.Second
	j.store.faults = []fault{on("upload", 1, func(s *store, _ http.ResponseWriter, _ *http.Request) bool {
		require.NoError(t, os.Rename(j.creds, j.creds+".gone"))
		return false
	})}
	j.start()
	<-j.ended
	require.NoError(t, os.Rename(j.creds+".gone", j.creds))
	require.Equal(t, 1, j.cmd.ProcessState.ExitCode())
	j.elapsed = time.Since(j.started)
	j.searchForSecrets()
	m := j.marker()
	require.Equal(t, "failed", m["status"])
	require.Equal(t, []string{"outputs/a"}, j.objects())
	require.Contains(t, j.stderr.String(), "with the envelope held")
	require.NotContains(t, j.output(), j.creds)
}

func TestMarkersOwnExpiryIsRepeatedOnce(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"})
	j.store.faults = []fault{func(s *store, kind, name string, _ int, w http.ResponseWriter, r *http.Request) bool {
		if name == markerName && j.generation == 1 {
			j.rotate(time.Hour)
			s.only(2)
		}
		return false
	}}
	j.succeeded()
	require.Equal(t, 2, count(j.store.requests("upload"), markerName))
}

func TestRenewedEnvelopeThatLostAnInputIsPermanent(t *testing.T) {
	t.Parallel()
	j := newJob(t, in{name: "a", data: "1"}, in{name: "b", data: "2"})
	j.store.faults = []fault{on("upload", 1, func(s *store, _ http.ResponseWriter, _ *http.Request) bool {
		j.inputs = j.inputs[:1]
		j.rotate(time.Hour)
		s.only(2)
		return false
	})}
	require.Contains(t, j.failed(10), "no longer lists it")
}
