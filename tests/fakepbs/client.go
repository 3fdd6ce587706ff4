package fakepbs

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"time"
)

// request is one command's call of the server.
type request struct {
	Name  string            `json:"name"`
	Args  []string          `json:"args"`
	Stdin []byte            `json:"stdin,omitempty"`
	User  string            `json:"user"`
	Cwd   string            `json:"cwd"`
	Env   map[string]string `json:"env"`

	Config *Config `json:"config,omitempty"` // a change of the cluster, no command
	Lose   string  `json:"lose,omitempty"`   // a host
	Return string  `json:"return,omitempty"`
}

// reply is what the command prints and ends with.
type reply struct {
	Stdout []byte        `json:"stdout,omitempty"`
	Stderr []byte        `json:"stderr,omitempty"`
	Code   int           `json:"code"`
	Wait   time.Duration `json:"wait,omitempty"` // before it prints
	Hang   bool          `json:"hang,omitempty"` // it never does
}

// SocketPath is where a cluster's server listens.
func SocketPath(dir string) string { return filepath.Join(dir, "server.sock") }

// UserVariable lets a test call the commands as somebody else.
const UserVariable = "FAKEPBS_USER"

// call asks the server and does what it says.
func call(dir, name string, args []string) int {
	req := request{Name: name, Args: args, Env: map[string]string{}}
	if me, err := user.Current(); err == nil {
		req.User = me.Username
	}
	if as := os.Getenv(UserVariable); as != "" {
		req.User = as
	}
	req.Cwd, _ = os.Getwd()
	for _, kv := range os.Environ() {
		for i := range len(kv) {
			if kv[i] == '=' {
				req.Env[kv[:i]] = kv[i+1:]
				break
			}
		}
	}
	if name == "qsub" && !slices.Contains(args, "--version") {
		stdin, err := io.ReadAll(os.Stdin)
		if err != nil {
			return fault(err)
		}
		req.Stdin = stdin
	}
	rep, err := ask(dir, req)
	if err != nil {
		return fault(err)
	}
	if rep.Hang {
		select {}
	}
	time.Sleep(rep.Wait)
	os.Stdout.Write(rep.Stdout)
	os.Stderr.Write(rep.Stderr)
	return rep.Code
}

func ask(dir string, req request) (reply, error) {
	var rep reply
	conn, err := net.Dial("unix", SocketPath(dir))
	if err != nil {
		return rep, err
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return rep, err
	}
	err = json.NewDecoder(conn).Decode(&rep)
	return rep, err
}

// Configure changes a running cluster.
func Configure(dir string, c Config) error {
	_, err := ask(dir, request{Config: &c})
	return err
}

// LoseHost ends everything on a host, and nobody is told.
func LoseHost(dir, host string) error {
	_, err := ask(dir, request{Lose: host})
	return err
}

// ReturnHost brings a lost host back, empty.
func ReturnHost(dir, host string) error {
	_, err := ask(dir, request{Return: host})
	return err
}
