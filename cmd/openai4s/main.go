// Command openai4s submits jobs and follows them: the users' and administrators' side of the command line.
//
// A command is a file of its own; exit.go alone decides exit codes; connect.go finds the gateway or serves one.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
