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

// Config says how the load of a store is reported.
type Config struct {
	Server  *bootstrap.Server
	Node    *corepb.Node
	Conn    *transport.Conn
	Backoff backoff.Config
	// Go runs a function on a goroutine, and reports false if the client is closed. The
	// client waits for the goroutine when it is closed.
	Go func(func()) bool
}

// A reporter reports the load that a Store has counted to one server, on a stream of its
// own on the server's connection (gRFC A27). Of all clusters there is one stream: it
// begins with the first whose load is counted, and ends when that of the last was
// reported and no RPC is on its way.
type reporter struct {
	Config
	ctx   context.Context // ends with the client
	store *load.Store
	// wake wakes the goroutine when the Store is first used or no longer used.
	wake chan struct{}

	// mu guards what follows. While running is set, a goroutine keeps a stream open, and Conn is in use.
	mu      sync.Mutex
	running bool
	// failure is the text of the last failure, empty after an answer. Only the
	// goroutine uses it.
	failure string
}

// NewStore returns a store whose load is reported as long as it is used. The end of ctx
// ends that after a last report.
func NewStore(ctx context.Context, c Config) *load.Store {
	r := &reporter{Config: c, ctx: ctx, wake: make(chan struct{}, 1)}
	r.store = load.NewStore(r.changed)
	return r.store
}

// changed is called by the Store.
func (r *reporter) changed() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running || !r.store.InUse() {
		return
	}
	r.Conn.Use()
	if !r.Go(r.run) {
		r.Conn.Release()
		return
	}
	r.running = true
}

// run keeps a stream open as long as there is something to report. It backs off as
// the ADS stream does.
func (r *reporter) run() {
	defer r.Conn.Release()
	failures := 0
	for {
		started := time.Now()
		answered, err := r.attempt()
		r.log(answered, err)
		if r.done() {
			return
		}
		if answered {
			failures = 0
		}
		r.Conn.Pause(r.ctx, retries.After(failures, r.Backoff)-time.Since(started))
		failures++
		if r.done() {
			return
		}
	}
}

// done reports whether the goroutine is to end: the client is closed, or no cluster
// is in use. Load that is left in the Store then is for the next stream, if there is one:
// a server that cannot be reached is not asked again only for that.
func (r *reporter) done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() == nil && r.store.InUse() {
		return false
	}
	r.running = false
	return true
}

// log logs failures, each once in a row.
func (r *reporter) log(answered bool, err error) {
	if answered {
		r.failure = ""
	}
	if err == nil || r.ctx.Err() != nil {
		return
	}
	err = transport.Reason(err)
	if answered {
		logger.Infof("load reports to xDS management server %s were interrupted, will be resumed: %v", r.Server, err)
		return
	}
	if text := err.Error(); text != r.failure {
		r.failure = text
		logger.Warningf("load cannot be reported to xDS management server %s, which clusters with lrs_server ask for: %v", r.Server, err)
	}
}

// attempt opens a stream and stays with it until it ends. answered says whether the
// server said anything of use.
func (r *reporter) attempt() (answered bool, err error) {
	cc, err := r.Conn.Open()
	if err != nil {
		return false, err
	}
	// Not the client's context: when that ends, there is a last report to send.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	unlink := context.AfterFunc(r.ctx, cancel)
	defer unlink()
	wire, err := cc.NewStream(ctx, transport.StreamDesc, method,
		grpc.ForceCodecV2(transport.Codec{}), grpc.MaxCallRecvMsgSize(maxAnswer))
	if err != nil {
		return false, err
	}
	s := &stream{reporter: r, ctx: ctx, wire: wire, ordered: make(chan struct{}, 1), ended: make(chan error, 1)}
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
	defer context.AfterFunc(r.ctx, func() { time.AfterFunc(Farewell, cancel) })()
	return true, s.serve()
}
