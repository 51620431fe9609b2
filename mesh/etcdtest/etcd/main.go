// Command etcd runs an etcd of one member, to try "dynxds serve --store" with where there is none, and for tests. It keeps
// its data in a temporary folder, which it removes when it ends, or in one that is named.
//
//	etcd [-listen localhost:12379] [-data DIR]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func main() {
	listen := flag.String("listen", "localhost:12379", "address for clients")
	data := flag.String("data", "", "folder for the data, which stays; by default a temporary one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *data); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, listen, dir string) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "dynxds-etcd-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	config := embed.NewConfig()
	config.Dir = dir
	config.UnsafeNoFsync = true // a crash of the machine may cost the data
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: listen}}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}} // there are no others
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
		fmt.Printf("etcd is ready: --store etcd://%s\n", listen)
	case err := <-server.Err():
		return err
	case <-ctx.Done():
		return nil
	}
	select {
	case err := <-server.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}
