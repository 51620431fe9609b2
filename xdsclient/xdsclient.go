package xdsclient

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/lrs"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// XDSClient is the Client over real management servers. It has one ADS stream
// per server, while something from it is watched; per server and target where an authority has several servers
// (ForTarget). It is safe for concurrent use.
type XDSClient struct {
	watches
	config     *bootstrap.Config
	options    Options
	maxMembers int
	seed       maphash.Seed
	dispatcher *dispatcher
	// ctx ends when the client is closed, and running has the goroutines.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	// attached are the gRPC channels that use the client.
	attached attachments

	// mu guards the fields below and everything that is reached from them. See the package comment.
	mu          sync.Mutex
	authorities map[authorityKey]*authority
	// channels holds the channels in use.
	channels map[channelKey]*managementServer
	// shares are by bootstrap.Server.Key. The bootstrap bounds them.
	shares map[string]*serverShare
	// types holds the types that were watched, by type URL. It grows with the program, not with
	// what a server sends.
	types map[string]*ResourceType
	// batches counts the calls to Batch that are under way.
	batches int
	stats   Stats
	// log holds the lines that unlock writes.
	log []boundlog.Line
	// censuses are those by target that were taken since something changed.
	censuses map[string]census
	ignored  ignoredLog
	// diskWriter is nil without a resource_cache.
	diskWriter *diskWriter
}

var (
	_ Client        = (*XDSClient)(nil)
	_ LocatorClient = (*XDSClient)(nil)
)

// New makes a client that is not shared with other callers. The caller closes it.
// An error names the option that has a wrong value.
func New(cfg *bootstrap.Config, opts Options) (*XDSClient, error) {
	if cfg == nil {
		return nil, errors.New("xdsclient: a client needs a bootstrap")
	}
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("xdsclient: %w", err)
	}
	c := &XDSClient{
		config:      cfg,
		attached:    attachments{byTarget: make(map[string][]*attachment)},
		options:     opts,
		maxMembers:  defaultMaxMembers,
		seed:        maphash.MakeSeed(),
		authorities: make(map[authorityKey]*authority),
		channels:    make(map[channelKey]*managementServer),
		shares:      make(map[string]*serverShare),
		types:       make(map[string]*ResourceType),
	}
	c.watches.client = c
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.dispatcher = &dispatcher{client: c, wake: transport.NewSignal()}
	c.running.Go(func() { c.dispatcher.run(c.ctx) })
	if c.diskWriter = newDiskWriter(c); c.diskWriter != nil {
		c.running.Go(func() { c.diskWriter.run(c.ctx) })
	}
	addClient(c)
	return c, nil
}

// Bootstrap implements Client.
func (c *XDSClient) Bootstrap() *bootstrap.Config { return c.config }

// watch starts a watch of a resource or a collection for a target.
func (c *XDSClient) watch(t *ResourceType, l wire.Locator, w *watch, target string) (stop func()) {
	c.mu.Lock()
	defer c.unlock()
	if c.ctx.Err() != nil {
		return func() {}
	}
	w.client, w.queued.watch = c, w
	_, collection := w.watcher.(wholeWatcher)
	if a, canonical, err := c.authorityFor(t, l.Name, collection, target); err != nil {
		w.queueRefusal(c.fault(KindConfiguration, t, wire.Locator{Name: faults.Shorten(l.Name, xdsname.MaxLength), Constraints: l.Constraints}, err))
	} else {
		a.watch(t, wire.Locator{Name: canonical, Constraints: l.Constraints}, w)
	}
	return func() { c.stop(w) }
}

func (c *XDSClient) stop(w *watch) {
	c.mu.Lock()
	defer c.unlock()
	if w.stopped {
		return
	}
	w.abandon()
	if w.resource != nil {
		w.resource.authority.unwatch(w)
	}
}

// authorityFor returns the authority of a name for a target, and the name in canonical form.
func (c *XDSClient) authorityFor(t *ResourceType, name string, collection bool, target string) (*authority, string, error) {
	n, err := xdsname.Parse(name)
	if collection && name == wildcard {
		n, err = xdsname.Name{Text: wildcard}, nil
	}
	if err != nil {
		return nil, "", err
	}
	if err := checkName(n, t, collection); err != nil {
		return nil, "", err
	}
	if t.Decode == nil {
		return nil, "", fmt.Errorf("the ResourceType of %s has no Decode", t.TypeURL)
	}
	if known, ok := c.types[t.TypeURL]; ok && known != t {
		return nil, "", fmt.Errorf("type %s is watched with two different ResourceTypes", t.TypeURL)
	}
	key := authorityOf(n)
	a := c.authorities[key]
	if a == nil || len(a.servers) > 1 {
		key.target = target
		a = c.authorities[key]
	}
	if a == nil {
		servers, err := serversFor(c.config, key)
		if err != nil {
			return nil, "", err
		}
		if len(servers) == 1 {
			key.target = ""
		}
		a = newAuthority(c, key, servers)
		c.authorities[key] = a
	}
	c.types[t.TypeURL] = t
	return a, n.Text, nil
}

// fault makes an Error about a resource.
func (c *XDSClient) fault(kind ErrorKind, t *ResourceType, l wire.Locator, err error) *Error {
	return &Error{
		Kind:        kind,
		Code:        kinds[kind].code,
		TypeName:    t.Name,
		Resource:    l.Name,
		Constraints: l.Constraints,
		NodeID:      c.config.Node.GetId(),
		Err:         err,
		state:       kinds[kind].state,
		stamp:       stampNow(""),
	}
}

// channelKey identifies a channel: by bootstrap.Server.Key, and by the target that it is for.
type channelKey struct{ server, target string }

// channelTo returns the channel to a server, which authorities for a target that name the same
// server share (gRFC A47).
func (c *XDSClient) channelTo(server *bootstrap.Server, target string) *managementServer {
	key := channelKey{server.Key(), target}
	ch, ok := c.channels[key]
	if !ok {
		ch = newManagementServer(c, server, target)
		c.channels[key] = ch
		ch.share.conn.Use()
		c.running.Go(ch.run)
	}
	return ch
}

// serverShare is what all streams to a server share, also those for several targets.
type serverShare struct {
	conn *transport.Conn
	// work limits the work on the responses of the server, and loads counts the load that is reported to it.
	work  transport.Work
	loads *load.Store
}

// shareOf returns what all streams to a server share. The caller holds c.mu.
func (c *XDSClient) shareOf(server *bootstrap.Server) *serverShare {
	s := c.shares[server.Key()]
	if s == nil {
		conn := transport.NewConn(server, c.options.Backoff, c.options.Dial)
		reporter := lrs.New(server, c.config.Node, conn, c.options.Backoff)
		if c.ctx.Err() == nil {
			c.running.Go(func() { reporter.Run(c.ctx) })
		}
		s = &serverShare{conn: conn, loads: reporter.Store}
		c.shares[server.Key()] = s
	}
	return s
}

// DecodeOptions returns the options of a decoder for any resource from a management server of the bootstrap. It is for
// programs that decode resources themselves. What DecodeOptions.Loads counts is reported to the server until
// Close; the stream of reports (LRS) is open while a cluster is in use.
func (c *XDSClient) DecodeOptions(server *bootstrap.Server) DecodeOptions {
	c.mu.Lock()
	defer c.unlock()
	return DecodeOptions{Server: server, Loads: c.shareOf(server).loads, Bootstrap: c.config}
}

// Close ends all watches, streams and connections, and returns when all
// goroutines of the client have ended. It must not be called from a watcher. It
// may be called again.
func (c *XDSClient) Close() {
	c.Shutdown()
	c.running.Wait()
}

// Shutdown is Close for callers that do not wait, watchers included.
func (c *XDSClient) Shutdown() {
	removeClient(c)
	c.mu.Lock()
	defer c.unlock()
	c.diskWriter.collect()
	c.cancel()
	for _, a := range c.authorities {
		a.abandon()
	}
	for _, ch := range c.channels {
		ch.close()
	}
	for _, n := range c.dispatcher.queue {
		n.watch.abandon()
	}
}

// Stats counts what a client did since it was made.
type Stats struct {
	// Responses is the number of responses for subscribed types, and Rejected how many of them
	// were NACKed.
	Responses, Rejected uint64
	// Ignored is the number of responses for types that nothing is subscribed to. They are
	// neither ACKed nor NACKed.
	Ignored uint64
	// Decoded is the number of resources that were decoded, and Unchanged of those that did not
	// have to be.
	Decoded, Unchanged uint64
	// Unasked is the number of resources, and of errors for resources, that were dropped because
	// nothing watches them. Unmatched is how many of them were variants of what is watched, but
	// match the constraints of no watch.
	Unasked, Unmatched uint64
	// Ambiguous is how often a response had several variants for one subscription
	// between which xRFC TP2 does not decide ("Matching Behavior and Best
	// Practices").
	Ambiguous uint64
	// ServerErrors is the number of errors that servers sent in place of watched resources (xRFC
	// TP3).
	ServerErrors uint64
}

// Stats returns what the client has done so far.
func (c *XDSClient) Stats() Stats {
	c.mu.Lock()
	defer c.unlock()
	return c.stats
}

var logger = boundlog.Component("dynxds")

// infof and warningf add a line to the log. It waits until the lock is released, because writing it may
// block. The caller holds the lock and releases it with unlock.
func (c *XDSClient) infof(format string, args ...any) {
	c.log = append(c.log, logger.Info(format, args...))
}

func (c *XDSClient) warningf(format string, args ...any) {
	c.log = append(c.log, logger.Warning(format, args...))
}

// unlock releases the lock after a change and then writes the log.
func (c *XDSClient) unlock() {
	lines := c.log
	c.log = nil
	c.censuses = nil
	c.mu.Unlock()
	for _, l := range lines {
		l.Write()
	}
}

// Batch implements LocatorClient. Requests for all servers, ACKs included, wait
// until f returns. Batches may overlap; requests wait for all of them.
func (c *XDSClient) Batch(f func()) {
	c.mu.Lock()
	c.batches++
	c.mu.Unlock()
	defer c.endBatch()
	f()
}

func (c *XDSClient) endBatch() {
	c.mu.Lock()
	defer c.unlock()
	if c.batches--; c.batches > 0 {
		return
	}
	for _, ch := range c.channels {
		ch.notify()
	}
}
