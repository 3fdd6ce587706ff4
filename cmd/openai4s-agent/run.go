package main

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/openai4s/hpc/internal/agent"
	"github.com/openai4s/hpc/internal/step"
)

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "step":
			return step.Main(args[1:], stdin, stdout, stderr)
		case "launch":
			return agent.LaunchCommand(args[1:], stdout, stderr)
		case "stop":
			return agent.StopCommand(args[1:], stderr)
		case "guard":
			return agent.GuardCommand(args[1:], stdin, stderr)
		case "version", "--version":
			fmt.Fprintln(stdout, "openai4s-agent", version())
			return 0
		}
	}
	return agent.Main(args, version(), true, stdout, stderr)
}

// version is what the build recorded.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}
