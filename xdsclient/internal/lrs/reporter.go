package lrs

import (
	"context"
	"sync"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

var logger = boundlog.Component("dynxds")

// Reporter reports the load that a Store has counted to one server, on a stream of its
// own on the server's connection (gRFC A27). Of all clusters there is one stream: it
// begins with the first whose load is counted, and ends when that of the last was
// reported and no RPC is on its way.
type Reporter struct {
	Store   *load.Store
	server  *bootstrap.Server
	node    *corepb.Node
	conn    *transport.Conn
	backoff backoff.Config
	// wake is given when the Store is first used or no longer used.
	wake transport.Signal
	// failure is the text of the last failure, empty after an answer.
	failure string
}

// New returns a reporter with an empty Store.
func New(server *bootstrap.Server, node *corepb.Node, conn *transport.Conn, b backoff.Config) *Reporter {
	r := &Reporter{server: server, node: node, conn: conn, backoff: b, wake: transport.NewSignal()}
	r.Store = load.NewStore(r.wake.Give)
	return r
}

// Run reports until the client is closed, whose context is given. Then it sends a last report.
func (r *Reporter) Run(client context.Context) {
	for {
		if r.done(client) {
			select {
			case <-r.wake:
				continue
			case <-client.Done():
				return
			}
		}
		r.conn.Use()
		r.report(client)
		r.conn.Release()
	}
}

// report keeps a stream open as long as there is something to report. It backs off as
// the ADS stream does.
func (r *Reporter) report(client context.Context) {
	failures := 0
	for {
		started := time.Now()
		answered, err := r.attempt(client)
		r.log(client, answered, err)
		if r.done(client) {
			return
		}
		if answered {
			failures = 0
		}
		r.conn.Pause(client, retries.After(failures, r.backoff)-time.Since(started))
		failures++
		if r.done(client) {
			return
		}
	}
}

// done reports whether the client is closed, or no cluster
// is in use. Load that is left in the Store then is for the next stream, if there is one:
// a server that cannot be reached is not asked again only for that.
func (r *Reporter) done(client context.Context) bool { return client.Err() != nil || !r.Store.InUse() }

// log logs failures, each once in a row.
func (r *Reporter) log(client context.Context, answered bool, err error) {
	if answered {
		r.failure = ""
	}
	if err == nil || client.Err() != nil {
		return
	}
	err = transport.Reason(err)
	if answered {
		logger.Infof("load reports to xDS management server %s were interrupted, will be resumed: %v", r.server, err)
		return
	}
	if text := err.Error(); text != r.failure {
		r.failure = text
		logger.Warningf("load cannot be reported to xDS management server %s, which clusters with lrs_server ask for: %v", r.server, err)
	}
}

// attempt opens a stream and stays with it until it ends. answered says whether the
// server said anything of use.
func (r *Reporter) attempt(client context.Context) (answered bool, err error) {
	cc, err := r.conn.Open()
	if err != nil {
		return false, err
	}
	// Not the client's context: when that ends, there is a last report to send.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	unlink := context.AfterFunc(client, cancel)
	defer unlink()
	wire, err := cc.NewStream(ctx, transport.StreamDesc, method,
		grpc.ForceCodecV2(transport.Codec{}), grpc.MaxCallRecvMsgSize(maxAnswer))
	if err != nil {
		return false, err
	}
	s := &stream{Reporter: r, client: client, ctx: ctx, wire: wire, ordered: transport.NewSignal(), ended: make(chan error, 1)}
	var reading sync.WaitGroup
	reading.Go(func() { s.ended <- s.read() })
	defer func() {
		cancel()
		reading.Wait()
	}()
	if answered, err := s.begin(); err != nil || !answered {
		return answered, err
	}
	unlink()
	defer context.AfterFunc(client, func() { time.AfterFunc(Farewell, cancel) })()
	return true, s.serve()
}
