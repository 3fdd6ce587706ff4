// Command openai4s-gateway is the site daemon: it authenticates the ranks of every workload, counts and releases
// gangs, follows jobs to their end and answers users on its control socket.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
