package xdsclient

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// reporterState says whether a loadReporter has a goroutine.
type reporterState int

const (
	// reporterIdle: no cluster's load is to be reported.
	reporterIdle reporterState = iota
	// reporterRunning: a goroutine keeps an LRS stream open.
	reporterRunning
)

// loadReporter reports the load that a Store has counted to one server, on a
// stream of its own on the server's connection (gRFC A27). Of all clusters there is
// one stream: it begins with the first whose load is counted, and ends when that of
// the last was reported and no RPC is on its way.
type loadReporter struct {
	client *XDSClient
	server *bootstrap.Server
	store  *load.Store
	// news tells the goroutine that the Store has come into or gone out of use.
	news chan struct{}
	// state is guarded by XDSClient.mu. The goroutine that starts with
	// reporterRunning has conn.
	state reporterState
	conn  *connection
	// failure is the text of the last failure, empty after an answer. Only the
	// goroutine uses it.
	failure string
}

// loadsFor returns what counts the load for a server. The caller holds c.mu.
func (c *XDSClient) loadsFor(server *bootstrap.Server) *load.Store {
	r := c.reporters[server.Key()]
	if r == nil {
		r = &loadReporter{client: c, server: server, news: make(chan struct{}, 1)}
		r.store = load.NewStore(r.changed)
		c.reporters[server.Key()] = r
	}
	return r.store
}

// changed is called by the Store.
func (r *loadReporter) changed() {
	select {
	case r.news <- struct{}{}:
	default:
	}
	c := r.client
	c.mu.Lock()
	defer c.unlock()
	if r.state == reporterRunning || c.ctx.Err() != nil || !r.store.InUse() {
		return
	}
	r.state = reporterRunning
	r.conn = c.connect(r.server)
	c.running.Go(r.run)
}

// run keeps a stream open as long as there is something to report. It backs off as
// serverChannel.run does.
func (r *loadReporter) run() {
	conn := r.conn // another goroutine may have begun when this one ends
	defer r.client.disconnect(conn)
	tries := retries{config: r.client.options.backoff}
	for {
		started := time.Now()
		answered, err := r.attempt(conn)
		r.log(answered, err)
		if r.done() {
			return
		}
		if answered {
			tries.reset()
		}
		conn.pause(r.client.ctx, tries.next()-time.Since(started))
		if r.done() {
			return
		}
	}
}

// done reports whether the goroutine is to end: the client is closed, or no cluster
// is in use. What is left in the Store then is for the next stream, if there is one:
// a server that cannot be reached is not asked again only for that.
func (r *loadReporter) done() bool {
	c := r.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil && r.store.InUse() {
		return false
	}
	r.state = reporterIdle
	return true
}

// log tells of failures, each once in a row.
func (r *loadReporter) log(answered bool, err error) {
	if answered {
		r.failure = ""
	}
	if err == nil || r.client.ctx.Err() != nil {
		return
	}
	err = reason(err)
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
func (r *loadReporter) attempt(conn *connection) (answered bool, err error) {
	cc, err := conn.open(&r.client.options)
	if err != nil {
		return false, err
	}
	// Not the client's context: when that ends, there is a last report to send.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	unlink := context.AfterFunc(r.client.ctx, cancel)
	defer unlink()
	wire, err := cc.NewStream(ctx, streamDesc, loadMethod,
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxLoadAnswer))
	if err != nil {
		return false, err
	}
	s := newLoadStream(ctx, r, wire)
	defer func() {
		cancel()
		s.reading.Wait()
	}()
	if answered, err := s.begin(); !answered {
		return false, err
	}
	unlink()
	defer context.AfterFunc(r.client.ctx, func() { time.AfterFunc(farewell, cancel) })()
	return true, s.serve()
}
