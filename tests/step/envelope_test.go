package step_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEnvelopeThatCannotBeUsedEndsWithOneLineAndNoMarker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		raw      string
		envelope doc
		code     int
		says     string
	}{
		"no file":                      {raw: "-", code: 1, says: "credentials file"},
		"no JSON":                      {raw: "<html>?tok=x</html>", code: 1, says: "not JSON"},
		"cut off":                      {raw: `{"schema_version":1,`, code: 1, says: "not JSON"},
		"not UTF-8":                    {raw: "{\"a\":\"\xff\"}", code: 1, says: "not JSON"},
		"longer than is read":          {raw: `{"pad":"` + strings.Repeat("x", 64<<20) + `"}`, code: 1, says: "not JSON"},
		"a list":                       {raw: `[]`, code: 1, says: "not a JSON object"},
		"a string":                     {raw: `"x"`, code: 1, says: "not a JSON object"},
		"version is a boolean":         {envelope: doc{"schema_version": true}, code: 10, says: "schema_version"},
		"version is 1.0":               {raw: `{"schema_version":1.0}`, code: 10, says: "schema_version"},
		"version is a string":          {envelope: doc{"schema_version": "1"}, code: 10, says: "schema_version"},
		"version is 2":                 {envelope: doc{"schema_version": 2}, code: 10, says: "schema_version"},
		"no staging":                   {envelope: doc{"staging": nil}, code: 10, says: "staging"},
		"staging is a list":            {envelope: doc{"staging": []int{}}, code: 10, says: "staging"},
		"staging of an unknown mode":   {envelope: doc{"staging": doc{"mode": "ftp"}}, code: 10, says: "staging mode"},
		"staging without a form":       {envelope: doc{"staging": doc{"mode": "presigned_post"}}, code: 10, says: "post form"},
		"a post form without a prefix": {envelope: doc{"staging": doc{"mode": "presigned_post", "post": doc{"url": "http://127.0.0.1/", "fields": doc{}}}}, code: 10, says: "key_prefix"},
		"post fields that are no text": {envelope: doc{"staging": doc{"mode": "presigned_post", "post": doc{"url": "http://127.0.0.1/", "key_prefix": "p/", "fields": doc{"a": []int{}}}}}, code: 10, says: "post fields"},
		"local staging without a path": {envelope: doc{"staging": doc{"mode": "local_path"}}, code: 10, says: "no path"},
		"inputs that are no list":      {envelope: doc{"inputs": doc{}}, code: 10, says: "inputs"},
		"an input that is no object":   {envelope: doc{"inputs": []any{"a.csv"}}, code: 10, says: "input 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t)
			j.raw, j.envelope = c.raw, c.envelope
			require.Equal(t, c.code, j.run(), j.output())
			require.Contains(t, j.stderr.String(), c.says)
			require.Equal(t, 1, strings.Count(j.stderr.String(), "\n"), "one line: %q", j.stderr.String())
			require.Empty(t, j.stdout.String())
			require.Empty(t, j.store.requests("upload"))
		})
	}
}

func TestEnvelopeFormsThatAreUnderstood(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour).UTC()
	for name, envelope := range map[string]doc{
		"no schema_version":      {"schema_version": nil},
		"another scheme's name":  {"scheme": "gs"},
		"unknown keys":           {"issued_by": "newer", "Inputs": []int{1}, "Schema_Version": 2},
		"expiry with Z":          {"expires_at": soon.Format("2006-01-02T15:04:05Z")},
		"expiry with fractions":  {"expires_at": soon.Format("2006-01-02T15:04:05.123456+00:00")},
		"expiry with an offset":  {"expires_at": soon.In(time.FixedZone("", 7200)).Format("2006-01-02T15:04:05-07:00")},
		"expiry without offset":  {"expires_at": soon.Format("2006-01-02 15:04:05")},
		"expiry nobody can read": {"expires_at": "tomorrow"},
		"expiry of no type":      {"expires_at": 12},
		"no expiry":              {"expires_at": nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a.csv", data: "a\n"})
			j.envelope = envelope
			j.succeeded()
		})
	}
}

func TestCredentialsPath(t *testing.T) {
	t.Parallel()
	elsewhere := "/nowhere/else.json"
	for name, c := range map[string]struct {
		env     func(creds string) []string
		code    int
		warning bool
	}{
		"the current name alone":        {func(string) []string { return nil }, 0, false},
		"the old name alone":            {func(c string) []string { return []string{"LSPO_CREDENTIALS_FILE=", "LSPO_CREDENTIALS=" + c} }, 0, false},
		"both agree":                    {func(c string) []string { return []string{"LSPO_CREDENTIALS=" + c} }, 0, false},
		"both agree, spelled apart":     {func(c string) []string { return []string{"LSPO_CREDENTIALS=" + filepath.Dir(c) + "/./x/../creds.json"} }, 0, false},
		"they differ: the current wins": {func(string) []string { return []string{"LSPO_CREDENTIALS=" + elsewhere} }, 0, true},
		"they differ, current is missing": {func(c string) []string {
			return []string{"LSPO_CREDENTIALS_FILE=" + elsewhere, "LSPO_CREDENTIALS=" + c}
		}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in{name: "a.csv", data: "a\n"})
			j.env = c.env(j.creds)
			require.Equal(t, c.code, j.run(), j.output())
			require.NotContains(t, j.output(), elsewhere)
			require.NotContains(t, j.output(), j.creds)
			lines := 0
			for line := range strings.SplitSeq(j.stderr.String(), "\n") {
				if strings.Contains(line, "LSPO_CREDENTIALS_FILE") && strings.Contains(line, "LSPO_CREDENTIALS ") {
					lines++
				}
			}
			require.Equal(t, c.warning, lines == 1, j.stderr.String())
		})
	}
}

func TestCredentialsFolderMayBeTraversedAndNotListed(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can run the step as another user")
	}
	j := newJob(t, in{name: "a.csv", data: "a\n"})
	require.NoError(t, os.Chmod(j.dir, 0o777)) // /tmp of the container
	for dir := j.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(dir, info.Mode().Perm()|0o011))
	}
	j.asUser = &syscall.Credential{Uid: 4242, Gid: 4242}
	j.agent = filepath.Join(j.dir, "agent") // the built one may lie where only its owner looks
	binary, err := os.ReadFile(agent)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(j.agent, binary, 0o755))
	j.succeeded()
}
