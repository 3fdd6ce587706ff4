// Command server is the S3 server of the tests: versitygw over a folder, with one account. Its own command brings three
// other stores, an administrator's API and its test suite along, which double what there is to build.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve serves dir at address until it is killed.
func serve(address, dir string) error {
	store, err := posix.New(dir, meta.XattrMeta{}, posix.PosixOpts{NewDirPerm: 0o755, Concurrency: 64})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), store, &embedgw.Config{
		RootUserAccess:    os.Getenv("ROOT_ACCESS_KEY"),
		RootUserSecret:    os.Getenv("ROOT_SECRET_KEY"),
		Ports:             []string{address},
		MaxConnections:    64,
		MaxRequests:       64,
		MultipartMaxParts: 10000,
		Quiet:             true,
	})
}
