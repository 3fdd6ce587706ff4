//go:build live

package live_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/tests/cluster"
	"github.com/openai4s/hpc/tests/rig"
)

// TestSubmitFromAnyLoginNode: with nothing but the site file, commands reach the daemon by TCP; MUNGE says who asks, and
// everybody has their own workloads alone. The daemon isn't root and serves no socket to users.
func TestSubmitFromAnyLoginNode(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Remote: true})
	alice, bob := r.Alice(t), r.Bob(t)
	require.NoFileExists(t, filepath.Join(r.Dir, "gateway", "control.sock"))
	info, err := os.Stat(filepath.Dir(r.State()) + "/state")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "users can't reach the daemon's own socket")

	ran := alice.TrySubmit(t, rig.Shell(2, `echo rank $OPENAI4S_RANK of $(id -un)`, ""), "--wait")
	require.Zero(t, ran.Code, "%s%s", ran.Stdout, ran.Stderr)
	require.Len(t, alice.List(t), 1)
	w := alice.List(t)[0]
	require.Equal(t, "COMPLETED", w.Phase(), "%s", w)
	require.Equal(t, cluster.Alice, w.Text("owner"))
	text := alice.Read(t, w.Text("output"))
	require.Contains(t, text, "rank 0 of "+cluster.Alice)
	require.Contains(t, text, "rank 1 of "+cluster.Alice)

	id := alice.Submit(t, rig.Shell(1, "exec sleep 600", ""))
	job := alice.AwaitPhase(t, id, "ACTIVE").Text("job", "id")
	for _, args := range [][]string{{"status", id}, {"status", job}, {"wait", id}, {"cancel", id}, {"logs", id}} {
		ran := bob.Run(t, args...)
		require.Equal(t, 85, ran.Code, "%v: %s", args, ran.Stderr)
	}
	require.Empty(t, bob.List(t))
	require.Equal(t, 84, bob.Run(t, "list", "--all").Code)
	require.Equal(t, "ACTIVE", alice.Status(t, id).Phase())
	waits := alice.Go(t, "wait", id)
	require.Zero(t, alice.Run(t, "cancel", id).Code)
	require.Equal(t, 20, waits.Wait(t, rig.Patience).Code)

	audit, err := os.ReadFile(r.Daemon.AuditFile())
	require.NoError(t, err)
	require.Contains(t, string(audit), `"event":"control"`)
	require.Contains(t, string(audit), `"uid":`+strconv.Itoa(alice.UID))
	require.Contains(t, string(audit), `"uid":`+strconv.Itoa(bob.UID))
	require.Contains(t, string(audit), `"code":"not_found"`)
	for _, file := range []string{r.Daemon.AuditFile(), r.Daemon.LogFile()} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(text), "MUNGE:", file)
	}
}

// TestAdminsOverTCP: a member of an admin group sees everybody's workloads; so does root.
func TestAdminsOverTCP(t *testing.T) {
	t.Parallel()
	group := "o4s-adm-" + rig.Random(t, 4)
	out, err := exec.Command("groupadd", group).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() {
		out, err := exec.Command("groupdel", group).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	r := rig.New(t, rig.Options{Cluster: shared, Remote: true, Gateway: `admins = ["` + group + `"]`})
	alice, bob := r.Alice(t), r.Bob(t)
	id := alice.Submit(t, rig.Shell(1, "exec sleep 600", ""))
	require.Equal(t, 84, bob.Run(t, "list", "--all").Code)
	out, err = exec.Command("usermod", "--append", "--groups", group, cluster.Bob).CombinedOutput()
	require.NoError(t, err, "%s", out)
	ran := bob.Run(t, "list", "--all", "--json")
	require.Zero(t, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stdout, id)
	require.Empty(t, bob.List(t), "without --all their own alone")
	ran = bob.Run(t, "cancel", id)
	require.Zero(t, ran.Code, ran.Stderr)
	w := alice.AwaitEnd(t, id)
	require.Equal(t, "CANCELLED", w.Phase(), "%s", w)
	require.Equal(t, "ADMIN_CANCELLED", w.Text("reason"))
	// root ends a job that waits, too, as the scheduler lets it.
	id = alice.Submit(t, rig.Shell(1, "exec sleep 600", ""))
	cancel := exec.Command(r.Program("openai4s"), "--site", r.Site, "cancel", id)
	cancel.Env = append(os.Environ(), "SLURM_CONF="+r.Conf())
	out, err = cancel.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "CANCELLED", alice.AwaitEnd(t, id).Phase())
	audit, err := os.ReadFile(r.Daemon.AuditFile())
	require.NoError(t, err)
	require.Contains(t, string(audit), `"event":"admin","uid":`+strconv.Itoa(bob.UID))
}

// TestWhatIsNoGateway: a key that the site file doesn't name is told nothing, and nothing is done.
func TestWhatIsNoGateway(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Remote: true})
	alice := r.Alice(t)
	text, err := os.ReadFile(r.Site)
	require.NoError(t, err)
	pins := func(new string) string {
		return strings.Replace(string(text), `control_pins = ["`+r.Daemon.Pin(t)+`"]`, new, 1)
	}
	for name, c := range map[string]struct {
		site  string
		code  int
		words []string
	}{
		"another key": {pins(`control_pins = ["sha256:` + strings.Repeat("0", 64) + `"]`), 83,
			[]string{"isn't the gateway that", "its key is none of those", "hint: ask the site's administrators"}},
		"no pin":               {pins(""), 81, []string{"names no control_pins", "openai4s-gateway pin"}},
		"the agents' listener": {strings.Replace(string(text), ":"+strconv.Itoa(r.Remote), ":"+strconv.Itoa(r.Port), 1), 83, []string{"openai4s-control/1"}},
		"nobody":               {strings.Replace(string(text), ":"+strconv.Itoa(r.Remote), ":1", 1), 83, []string{"nobody answers at 127.0.0.1:1", "connection refused", "hint: start it on that host with: openai4s-gateway"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, string(text), c.site)
			site := alice.Write(t, "other.toml", c.site)
			ran := alice.Run(t, "--site", site, "submit", alice.JobFile(t, rig.Shell(1, "true", "")))
			require.Equal(t, c.code, ran.Code, ran.Stderr)
			require.Empty(t, ran.Stdout)
			for _, word := range c.words {
				require.Contains(t, ran.Stderr, word)
			}
		})
	}
	alice.RequireNothingMade(t)
	require.Empty(t, alice.List(t))
}

// TestStolenCredential: a credential that alice's own munge made is refused on bob's connection, used or not.
func TestStolenCredential(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Remote: true})
	alice, bob := r.Alice(t), r.Bob(t)
	text, err := os.ReadFile(r.Site)
	require.NoError(t, err)
	stolen := filepath.Join(r.Dir, "stolen")
	require.NoError(t, os.WriteFile(stolen, nil, 0o666))
	require.NoError(t, os.Chmod(stolen, 0o666))
	with := func(u *rig.User, name, munge string) string {
		program := u.Write(t, name+"-munge", "#!/bin/sh\n"+munge+"\n")
		require.NoError(t, os.Chmod(program, 0o755))
		return u.Write(t, name+".toml", strings.Replace(string(text), strconv.Quote(filepath.Join(r.Dir, "munge")), strconv.Quote(program), 1))
	}
	real := filepath.Join(r.Dir, "munge") + ` "$@"`
	replay := with(bob, "replay", "cat >/dev/null; cat "+stolen)

	used := with(alice, "used", real+" | tee "+stolen)
	require.Zero(t, alice.Run(t, "--site", used, "list").Code)
	ran := bob.Run(t, "--site", replay, "list")
	require.Equal(t, 84, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stderr, "replayed")

	unused := with(alice, "unused", real+" >"+stolen+"; exit 1")
	require.Equal(t, 83, alice.Run(t, "--site", unused, "list").Code)
	ran = bob.Run(t, "--site", replay, "submit", bob.JobFile(t, rig.Shell(1, "true", "")))
	require.Equal(t, 84, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stderr, "made for another connection")
	require.Empty(t, alice.List(t))
	require.Empty(t, bob.List(t))
	bob.RequireNothingMade(t)
}

// TestMungeDown: without MUNGE nobody is let in, nothing is done, and both sides say why; what runs goes on.
func TestMungeDown(t *testing.T) {
	t.Parallel()
	own := cluster.Up(t, cluster.Options{Nodes: 1})
	r := rig.New(t, rig.Options{Cluster: own, Remote: true})
	alice := r.Alice(t)
	id := alice.Submit(t, rig.Shell(1, `until test -e ../release; do sleep 0.2; done`, ""))
	alice.AwaitPhase(t, id, "ACTIVE")
	waits := alice.Go(t, "wait", id)
	rig.Await(t, rig.Patience, "wait to have connected", func() bool { return strings.Contains(waits.Stderr(), "ACTIVE") })

	own.Stop(t, "munged")
	ran := alice.TrySubmit(t, rig.Shell(1, "true", ""))
	require.Equal(t, 83, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stderr, "this host's MUNGE makes no credential")
	require.Contains(t, ran.Stderr, "Did you start munged?")
	require.Contains(t, ran.Stderr, "hint: tell the site's administrators")
	require.Equal(t, 83, alice.TrySubmit(t, rig.Shell(1, "true", ""), "--json").Doc(t).Int("error", "exit_code"))

	// alice's host has a munged, the daemon's hasn't.
	munge, _ := cluster.MungeCommands(t, alice.Home, cluster.Munge(t).Socket)
	text, err := os.ReadFile(r.Site)
	require.NoError(t, err)
	site := alice.Write(t, "other.toml", strings.Replace(string(text), strconv.Quote(filepath.Join(r.Dir, "munge")), strconv.Quote(munge), 1))
	ran = alice.Run(t, "--site", site, "submit", alice.JobFile(t, rig.Shell(1, "true", "")))
	require.Equal(t, 83, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stderr, "MUNGE on the gateway's host gives no answer")
	log, err := os.ReadFile(r.Daemon.LogFile())
	require.NoError(t, err)
	require.Contains(t, string(log), "look at munged on this host")

	own.Heal(t)
	require.Len(t, alice.List(t), 1, "nothing was made meanwhile")
	alice.Write(t, "release", "")
	waited := waits.Wait(t, rig.Patience)
	require.Zero(t, waited.Code, waited.Stderr)
	require.Equal(t, "COMPLETED", alice.AwaitEnd(t, id).Phase())
}

// TestLimitsAreNamed: a user at the site's limit is told which, and nothing is submitted.
func TestLimitsAreNamed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Remote: true, Gateway: "max_live = 2\nmax_credentials = 20"})
	alice, bob := r.Alice(t), r.Bob(t)
	ran := alice.TrySubmit(t, rig.Shell(4, "true", "restarts = 5"))
	require.Equal(t, 84, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stderr, "24 credentials")
	require.Contains(t, ran.Stderr, "max_credentials")
	var ids []string
	for range 2 {
		ids = append(ids, alice.Submit(t, rig.Shell(1, "exec sleep 600", "")))
	}
	ran = alice.TrySubmit(t, rig.Shell(1, "true", ""))
	require.Equal(t, 84, ran.Code, ran.Stderr)
	require.Contains(t, ran.Stderr, "the site allows 2 (max_live)")
	require.Contains(t, ran.Stderr, "hint: ")
	require.Len(t, alice.List(t), 2)
	require.Zero(t, bob.TrySubmit(t, rig.Shell(1, "true", ""), "--wait").Code, "another's limit is their own")
	for _, id := range ids {
		require.Zero(t, alice.Run(t, "cancel", id).Code)
		alice.AwaitEnd(t, id)
	}
	require.Zero(t, alice.TrySubmit(t, rig.Shell(1, "true", ""), "--wait").Code)
}

// TestBackupBesideRemoteControl: the daemon's own socket serves its administrator where users have TCP.
func TestBackupBesideRemoteControl(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Cluster: shared, Remote: true})
	to := filepath.Join(r.Dir, "backup.db")
	out, err := exec.Command(r.Program("openai4s-gateway"), "--site", r.Site, "store", "backup", "--to", to).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.FileExists(t, to)
	c, err := net.Dial("unix", filepath.Join(r.State(), "control.sock"))
	require.NoError(t, err)
	c.Close()
}
