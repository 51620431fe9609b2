package site

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/metrics"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/internal/store"
	"github.com/dynxds/dynxds/mesh/internal/webpage"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/mesh/statuspage"
)

// DefaultPoll is the default polling interval.
const DefaultPoll = time.Second

// Options configure Run.
type Options struct {
	// Dir is the folder, or Store the store in its place.
	Dir   string
	Store *store.Options
	// Documents are others in their place; Place says in the log what these are in, and Dir which one. Run closes them.
	Documents Documents
	Place     string
	// Identify and Authorize are those of controlplane.Options; each may be nil.
	Identify  func(context.Context, *corepb.Node) (*corepb.Node, time.Time, error)
	Authorize func(ctx context.Context, node *corepb.Node, typeURL, name string) error
	// OnNACK is called with the server after each NACK. It must not wait. It may be nil.
	OnNACK func(*controlplane.Server)
	// OnLeftOut is called after each update with the reports on what it leaves out, if the documents have authors of their own
	// (folder.Content.Separate). It must not wait. It may be nil.
	OnLeftOut func([]meshroute.Report)
	// BindLocators is controlplane.Options.BindLocators.
	BindLocators bool
	// Reauthorize has a value when Authorize may decide otherwise than before. It may be nil.
	Reauthorize <-chan struct{}
	// Authority is that of resources with names of xRFC TP1, and of DPDS; empty means only plain
	// names.
	Authority string
	// NoSources is publish.Options.NoSources.
	NoSources bool
	// Poll is the polling interval of a folder, zero for DefaultPoll. Each poll costs one stat per file.
	Poll time.Duration
	// Reload has signals that ask for a look at the documents at once. It may be nil.
	Reload <-chan os.Signal
	// Permissive publishes also what clients would reject.
	Permissive bool
	// RemovalDelay is controlplane.Options.RemovalDelay, but zero means no delay.
	RemovalDelay time.Duration
	// WithdrawalDelay is how long the removals of a change wait that leaves less than two thirds of the services; zero or
	// less: they do not.
	WithdrawalDelay time.Duration
	// Page is the address of a status page, see package webpage; empty: there is none.
	Page string
	// LoadInterval is the interval of load reports; zero means 10 s.
	LoadInterval time.Duration
	// Serve configures the server. Its Log is used for everything.
	Serve serve.Options
	// Ready is called with the address when the server is ready. It may be nil.
	Ready func(net.Addr)
	// access are the rules of Serve.AccessFile.
	access controlplane.Access
}

// Run runs a control plane until the context ends, and then drains. It fails if the folder has errors at the start; later
// errors do not end it. A store that is faulty then, or does not answer, others may correct: the server is not ready until
// the store is valid, and says why.
func Run(ctx context.Context, opts Options) error {
	if opts.Serve.Log == nil {
		opts.Serve.Log = slog.New(slog.DiscardHandler)
	}
	if err := opts.open(); err != nil {
		return err
	}
	defer opts.Documents.Close()
	var err error
	if opts.access, err = opts.Serve.Access(); err != nil {
		return exit.With(exit.Usage, err)
	}
	plane := newPlane(opts)
	state := plane.state
	plane.metrics.AddSource(state.State)
	opts.Serve.Metrics, opts.Serve.Configuration, opts.Serve.Loads = plane.metrics, state.State, plane.recentLoads
	server, err := serve.New(services{plane.ads, plane.loads}, opts.Serve)
	if err != nil {
		return err
	}
	faulty := plane.load(ctx)
	if faulty != nil && opts.Store == nil {
		server.Close()
		if ctx.Err() != nil {
			return nil // it was told to end before files had settled
		}
		return faulty
	}
	if opts.Page != "" {
		page, err := webpage.Serve(opts.Page, statuspage.WithControlPlane(plane.ads, plane.store), statuspage.WithConfiguration(state.State), statuspage.WithLoads(plane.recentLoads))
		if err != nil {
			server.Close()
			return err
		}
		defer page.Close()
		log := opts.Serve.Log.Info
		if page.Open {
			log = opts.Serve.Log.Warn
		}
		log("pages without a login", "flag", "--page", "url", page.URL, "open", page.Open)
	}
	ready := func() {
		server.SetReady(true)
		opts.Serve.Log.Info("serving", "address", server.Addr().String(), opts.Place, opts.Dir, "authority", opts.Authority)
		if opts.Ready != nil {
			opts.Ready(server.Addr())
		}
	}
	if faulty == nil {
		ready()
	} else {
		plane.onFirst = ready
		opts.Serve.Log.Warn("not ready: there is nothing to serve yet", "address", server.Addr().String(), opts.Place, opts.Dir, "error", faulty)
	}

	ctx, stop := context.WithCancel(ctx)
	var reloading sync.WaitGroup
	reloading.Go(func() { plane.run(ctx) })
	reloading.Go(func() { plane.reauthorize(ctx) })
	if of, ok := opts.Documents.(*store.Source); ok {
		replica := store.Replica{ID: server.ID(), Admin: server.AdminAddr(), Address: server.Addr().String(), Started: time.Now()}
		reloading.Go(func() { of.Announce(ctx, replica) })
	}
	err = server.Serve(ctx)
	stop()
	reloading.Wait()
	return err
}

// plane is a control plane that does not listen.
type plane struct {
	opts    Options
	log     *slog.Logger
	store   *controlplane.Store
	ads     *controlplane.Server
	metrics *metrics.Plane
	// loads is what clients report of services with loadReporting.
	loads     *controlplane.LoadReports
	publisher *publish.Publisher
	state     *planestate.Keeper
	absence   *absence

	// The following is for the goroutine that reads the documents. published is the last published content, or nil, and rejected what
	// clients reject of it all the same, as Options.Permissive says.
	published *folder.Content
	rejected  error
	// content and readErr are the last result of reading, and err is the error of reading or publishing it.
	content *folder.Content
	readErr error
	err     error
	// withheld is what is not published yet of the content, or nil.
	withheld *withheld
	// faults are the lines of the log on the last content, and reports those on the last published one.
	faults, reports map[line]bool
	// onFirst is called after the first publication if that is after the start; otherwise it is nil, and so it is afterwards.
	onFirst func()
}

// services are ADS and LRS.
type services struct {
	*controlplane.Server
	loads *controlplane.LoadReports
}

// Register adds both to a gRPC server.
func (s services) Register(r grpc.ServiceRegistrar) {
	s.Server.Register(r)
	s.loads.Register(r)
}

// Close ends the streams of both.
func (s services) Close() {
	s.Server.Close()
	s.loads.Close()
}

// knownLoads are the loads of clusters that there are still.
func (p *plane) knownLoads() []controlplane.ClusterLoad {
	return slices.DeleteFunc(p.loads.Snapshot(), func(l controlplane.ClusterLoad) bool { return !p.hasCluster(l.Cluster) })
}

// recentLoads are what clients have reported lately of clusters that there are still.
func (p *plane) recentLoads() []controlplane.RecentLoad {
	return slices.DeleteFunc(p.loads.Recent(), func(l controlplane.RecentLoad) bool { return !p.hasCluster(l.Cluster) })
}

// hasCluster reports whether there is a cluster, perhaps only for some clients.
func (p *plane) hasCluster(name string) bool {
	return len(p.store.Variants(meshroute.ClusterType, name)) > 0
}

// newPlane needs the Serve.Log of the options, and their Documents.
func newPlane(opts Options) *plane {
	p := &plane{
		opts: opts, log: opts.Serve.Log, store: controlplane.NewStore(), metrics: metrics.New(),
		state: planestate.NewKeeper(opts.Place, opts.Dir, opts.Documents.GoneSince), absence: newAbsence(),
	}
	p.loads = controlplane.NewLoadReports(controlplane.LoadOptions{
		Interval: opts.LoadInterval, Identify: opts.Identify, Access: opts.access,
		Known: func(_ context.Context, cluster string) bool { return p.hasCluster(cluster) },
	})
	p.metrics.AddLoads(p.knownLoads)
	p.publisher = publish.New(p.store, publish.Options{
		Authority: opts.Authority, NoSources: opts.NoSources, Check: check, Permissive: opts.Permissive,
		Refresh: func() { p.ads.RefreshNodeConstraints(nil) },
		Await:   func(ctx context.Context, ok func(controlplane.ClientStatus) bool) int { return p.ads.Await(ctx, ok) },
	})
	p.ads = controlplane.NewServer(p.store, controlplane.Options{
		MaxStreams:       opts.Serve.MaxStreams,
		OnRefused:        p.metrics.Limited,
		MaxSubscriptions: opts.Serve.MaxSubscriptions,
		Identify:         opts.Identify,
		Access:           opts.access,
		Authorize:        opts.Authorize,
		NodeConstraints:  p.publisher.NodeConstraints,
		BindLocators:     opts.BindLocators,
		NotFoundErrors:   true,
		Absence:          p.absence.text,
		WrapResources:    true,
		RemovalDelay:     cmp.Or(opts.RemovalDelay, -1), // zero means the default there
		OnNACK:           p.reject,
		OnACK:            p.metrics.ACKed,
	})
	return p
}

// reauthorize has clients subscribe again whenever their permissions have changed, until the context ends.
func (p *plane) reauthorize(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.opts.Reauthorize:
			p.ads.RefreshAuthorization()
		}
	}
}

// reject logs and counts a NACK.
func (p *plane) reject(r controlplane.Rejection) {
	p.metrics.NACKed(r)
	serve.LogRejection(p.log, r)
	if p.opts.OnNACK != nil {
		p.opts.OnNACK(p.ads)
	}
}
