package relay

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// InProcess starts a relay for the xDS clients of this process, so that together they have one stream to the
// management server. Istio's agent, for example, serves one stream and closes it when another one begins: a process
// with an xDS server of gRPC-Go, which has an xDS client of its own, then gets no RPC through.
//
// The clients take the bootstrap that InProcess returns, which has the relay's Unix domain socket in place of the
// management servers, and is else that of opts:
//
//	bootstrap, stop, err := relay.InProcess(relay.Options{})
//	server, err := xds.NewGRPCServer(xds.BootstrapContentsForTesting(bootstrap))
//	cc, err := grpc.NewClient("xds:///echo", dynxds.DialOptions(dynxds.WithBootstrap(bootstrap))...)
//
// A zero Bootstrap is that of the environment. OneGroup is always set. The socket is in a directory that
// only the user of the process can read. stop ends the streams of the clients, closes the relay, waits
// for its goroutines and removes the socket; it may be called again. The errors are those of [New], of the
// environment's bootstrap, and of the socket.
func InProcess(opts Options) (clientBootstrap []byte, stop func(), err error) {
	if opts.Bootstrap == nil {
		if opts.Bootstrap, err = bootstrap.FromEnv(); err != nil {
			return nil, nil, fmt.Errorf("relay: %w", err)
		}
	}
	opts.OneGroup = true
	r, err := New(opts)
	if err != nil {
		return nil, nil, err
	}
	dir, listener, err := listenPrivately()
	if err != nil {
		r.Close()
		return nil, nil, fmt.Errorf("relay: the socket, in the directory for temporary files (TMPDIR): %w", err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	r.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil {
			r.log.Error("the relay for this process has failed", "error", err)
		}
	})
	stop = sync.OnceFunc(func() {
		r.Close()
		server.Stop()
		serving.Wait()
		if err := os.RemoveAll(dir); err != nil {
			r.log.Warn("cannot remove the socket of the relay for this process", "error", err)
		}
	})
	return opts.Bootstrap.Through("unix://" + listener.Addr().String()), stop, nil
}

// listenPrivately listens on a Unix domain socket in a directory of its own, which only the user can read.
func listenPrivately() (dir string, l net.Listener, err error) {
	if dir, err = os.MkdirTemp("", "dynxds-"); err != nil { // its mode is 0700
		return "", nil, err
	}
	path, err := filepath.Abs(filepath.Join(dir, "xds.sock"))
	if err == nil {
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, l, nil
}
