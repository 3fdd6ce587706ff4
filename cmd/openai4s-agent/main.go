// Command openai4s-agent is the static program that every rank of an allocation starts: it dials back to the gateway
// and runs the rank's command. It also runs external steps, and starts ranks where a scheduler has no launcher.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
