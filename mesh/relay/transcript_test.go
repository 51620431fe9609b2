package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// TestTranscripts follows the transcripts of testdata/transcripts, whose README.txt describes them.
func TestTranscripts(t *testing.T) {
	for _, upstream := range []string{"SotW", "delta"} {
		for _, dir := range []string{"", upstream} {
			t.Run(upstream+" "+dir, func(t *testing.T) {
				golden.Scripts(t, filepath.Join("testdata/transcripts", dir, "*.txt"), 40, func(t testing.TB) func(string) string {
					p := newPlayer(t, upstream)
					t.Cleanup(p.close)
					return func(line string) string {
						if options, begins := strings.CutPrefix(line, "@"); begins {
							p.begin(options)
							return ""
						}
						return strings.Join(p.step(line), " | ")
					}
				})
			})
		}
	}
}

// player carries out a transcript: a control plane, a relay and its clients, whose messages arrive at once.
type player struct {
	t       testing.TB
	opts    relay.Options
	relay   *relay.Relay
	store   *controlplane.Store
	control *controlplane.Server
	// front are the services of the relay, and back those of the control plane.
	front, back services
	clients     []*playedClient
	// upstreams are the load reports that the control plane has, and that of the authority "other", and reported what they had.
	upstreams [2]*controlplane.LoadReports
	reported  [2]map[string]string
	log       xdstest.Log
	logged    int
	// asked is what the relay has asked for, in order.
	asked []string

	mu sync.Mutex
	// away says that the control plane is unreachable, and refusing that it does not speak delta.
	away, refusing bool
	streams        []*link
	// reports are the rejections that the relay has reported.
	reports []string
}

func newPlayer(t testing.TB, upstream string) *player {
	p := &player{t: t, store: controlplane.NewStore(), front: services{}, back: services{}}
	p.control = controlplane.NewServer(p.store, controlplane.Options{
		RemovalDelay: -1, WrapResources: true, OnNACK: func(n controlplane.Rejection) { t.Errorf("the control plane was sent %+v", n) },
	})
	p.control.Register(p.back)
	for i := range p.upstreams {
		p.upstreams[i] = controlplane.NewLoadReports(controlplane.LoadOptions{Interval: time.Second})
	}
	p.upstreams[0].Register(p.back)
	features := []string{"dynamic_parameter_constraints"}
	if upstream == "delta" {
		features = append(features, "delta")
	}
	cfg, err := bootstrap.Parse("test", testutils.Bootstrap("relay", "passthrough:///server", testutils.ServerFeatures(features...), testutils.Authority("authority", "", nil), testutils.Authority("other", otherServer, nil)))
	xdstest.NoError(t, err)
	p.opts = relay.Options{
		Bootstrap: cfg, Log: slog.New(slog.NewTextHandler(&p.log, nil)), Server: controlplane.Options{WrapResources: true, OnNACK: p.rejected},
		Client: xdsclient.Options{
			Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			Dial:    []grpc.DialOption{grpc.WithStreamInterceptor(p.openUpstream)},
		},
	}
	return p
}

func (p *player) rejected(n controlplane.Rejection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports = append(p.reports, n.Node.GetId()+" rejects: "+n.NACK.Err.Message())
}

func (p *player) close() {
	for _, c := range p.clients {
		c.stop()
	}
	if p.relay != nil {
		p.relay.Close()
	}
	p.control.Close()
	for _, l := range p.upstreams {
		l.Close()
	}
	synctest.Wait()
}

// otherServer is the management server of the authority "other", which only has load reports.
const otherServer = "passthrough:///other"

// rules are those of the option access.
const rules = `[
	{"san": "spiffe://mesh/shop/{service}", "names": ["shop.", "xdstp://other/"]},
	{"san": "spiffe://mesh/shop/teller", "names": ["bank."]},
	{"san": "spiffe://mesh/sa/{service}", "names": [""], "node": {"metadata": {"service": "{service}"}}}]`

// begin sets the options, and starts the relay.
func (p *player) begin(options string) {
	for _, option := range strings.Fields(options) {
		name, value, _ := strings.Cut(option, "=")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		switch name {
		case "delta", "SotW":
		case "cache":
			p.opts.Bootstrap.ResourceCache.Directory, p.opts.Bootstrap.ResourceCache.MaxAge = p.t.TempDir(), time.Hour
		case "linger":
			p.opts.Linger = d
		case "patience":
			p.opts.AwayDelay = d
		case "groups":
			p.opts.MaxGroups = n
		case "names":
			p.opts.MaxGroupSubscriptions = n
			p.opts.Server.MaxSubscriptions = 1000
		case "one":
			p.opts.OneGroup = true
		case "access":
			var err error
			p.opts.Access, err = controlplane.ParseAccess([]byte(rules))
			xdstest.NoError(p.t, err)
		default:
			p.t.Fatalf("%q is no option", option)
		}
	}
	p.start()
}

func (p *player) start() {
	var err error
	p.relay, err = relay.New(p.opts)
	xdstest.NoError(p.t, err)
	p.relay.Register(p.front)
}

// openUpstream is the interceptor of the relay's streams.
func (p *player) openUpstream(
	ctx context.Context, _ *grpc.StreamDesc, cc *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return nil, errLost
	}
	services := p.back
	if cc.Target() == otherServer {
		services = make(map[string]func(grpc.ServerStream) error)
		p.upstreams[1].Register(services)
	}
	l := services.open(ctx, method)
	if p.refusing && strings.Contains(method, "Delta") {
		l.finish(status.Error(codes.Unimplemented, "no delta"))
	}
	l.up.open, l.down.open = true, true
	p.streams = append(p.streams, l)
	return newClientEnd(l, opts), nil
}

// lose ends the streams upstream, and says whether the control plane is reachable from now on.
func (p *player) lose(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
	if away {
		for _, l := range p.streams {
			l.finish(errLost)
		}
		p.streams = nil
	}
}

// step carries out a step, and returns what it leads to.
func (p *player) step(line string) (outcome []string) {
	var of *playedClient
	if n, rest, ok := strings.Cut(line, ": "); ok {
		i, err := strconv.Atoi(n)
		xdstest.NoError(p.t, err)
		of, line = p.clients[i-1], rest
	}
	verb, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	wait := shortly
	switch verb {
	case "open":
		p.open(words)
	case "send":
		of.send(words[0], words[1:])
	case "load":
		of.load(p.front, words)
	case "silent":
		of.loads.finish(errLost)
	case "reject":
		of.rejection = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: rest}
	case "end":
		of.stop()
	case "lose", "find":
		p.lose(verb == "lose")
	case "refuse", "accept":
		p.mu.Lock()
		p.refusing = verb == "refuse"
		p.mu.Unlock()
	case "wait":
		var err error
		wait, err = time.ParseDuration(words[0])
		xdstest.NoError(p.t, err)
	case "restart":
		p.relay.Close()
		p.start()
	case "stats":
		outcome = append(outcome, textOfStats(p.relay.Stats()))
	default:
		_, err := p.store.Update(func(tx *controlplane.Tx) {
			for change := range strings.SplitSeq(line, "; ") {
				p.change(tx, strings.Fields(change))
			}
		})
		xdstest.NoError(p.t, err)
	}
	time.Sleep(wait)
	synctest.Wait()
	return append(outcome, p.outcome()...)
}

// open opens a stream of a client, with its node: an ID and metadata.
func (p *player) open(words []string) {
	n := &corepb.Node{Id: words[1], Cluster: "test", UserAgentName: "client", ClientFeatures: []string{"xds.config.resource-in-sotw"}}
	from := &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	for _, word := range words[2:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "at":
			from.Addr = &net.TCPAddr{IP: net.ParseIP(value)}
		case "san":
			from.AuthInfo = verified(p.t, value)
		case "feature":
			n.ClientFeatures = append(n.ClientFeatures, value)
		case "agent":
			n.UserAgentName = value
		default:
			n.Metadata = node("", key, value).Metadata
		}
	}
	c := &playedClient{t: p.t, delta: words[0] == "delta", node: n, wants: map[string]map[string]*discoverypb.ResourceLocator{}, has: map[string]string{}, answers: map[string]*discoverypb.DeltaDiscoveryResponse{}}
	c.ctx, c.stop = context.WithCancel(peer.NewContext(context.Background(), from))
	method := "StreamAggregatedResources"
	if c.delta {
		method = "DeltaAggregatedResources"
	}
	c.link = p.front.open(c.ctx, adsMethods+method)
	c.link.up.open = true
	p.clients = append(p.clients, c)
}

// outcome returns what the control plane was asked for, what clients were sent, and the lines of the log.
func (p *player) outcome() (texts []string) {
	asked := p.subscriptions()
	texts = append(texts, prefixed("asks ", without(asked, p.asked))...)
	texts = append(texts, prefixed("leaves ", without(p.asked, asked))...)
	p.asked = asked
	for i, c := range p.clients {
		texts = append(texts, prefixed(fmt.Sprint(i+1, ": "), c.sent())...)
	}
	synctest.Wait() // for what their answers lead to
	for i, to := range []string{"loads ", "loads of other "} {
		loads := textsOfLoads(p.upstreams[i].Snapshot())
		for name, text := range loads {
			if p.reported[i][name] != text {
				texts = append(texts, to+name+text)
			}
		}
		p.reported[i] = loads
	}
	p.mu.Lock()
	slices.Sort(p.reports)
	texts, p.reports = append(texts, p.reports...), nil
	p.mu.Unlock()
	lines := strings.Split(p.log.String(), "\n")
	for _, line := range lines[p.logged : len(lines)-1] {
		_, line, _ = strings.Cut(line, "msg=")
		texts = append(texts, "log: "+textOfLog.FindString(line))
	}
	p.logged = len(lines) - 1
	return texts
}

// textOfLog is the message of a line.
var textOfLog = regexp.MustCompile(`^"[^"]*"`)

func prefixed(prefix string, texts []string) (all []string) {
	if len(texts) > 0 {
		all = append(all, prefix+strings.Join(texts, " "))
	}
	return all
}

// without returns the texts of a list that another one does not have, each as often as it is there more.
func without(list, other []string) (rest []string) {
	other = slices.Clone(other)
	for _, text := range list {
		if i := slices.Index(other, text); i >= 0 {
			other = slices.Delete(other, i, i+1)
		} else {
			rest = append(rest, text)
		}
	}
	return rest
}

// subscriptions are those that the control plane has, with the nodes, in order.
func (p *player) subscriptions() (all []string) {
	for _, c := range p.control.Clients() {
		of := ""
		if c.Node.GetId() != "relay" {
			of = "@" + c.Node.GetId()
		}
		for key, value := range c.Node.GetMetadata().GetFields() {
			of += "@" + key + "=" + value.GetStringValue()
		}
		for _, typ := range c.Types {
			if typ.Wildcard {
				all = append(all, textOfType(typ.TypeURL)+":*"+of)
			}
			for _, l := range typ.Locators {
				if l.Name != "*" || !typ.Wildcard {
					all = append(all, textOfType(typ.TypeURL)+":"+shortName(l.Name)+textOfConstraints(l.Constraints)+of)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func textOfStats(s relay.Stats) string {
	text := fmt.Sprintf("%d groups, %d upstreams, %d subscriptions, %d linger, %d refused, %d cached, %d unreachable, %d served away",
		s.Groups, s.Upstreams, s.Subscriptions, s.Lingering, s.Refused, s.Cached, s.Unreachable, s.ServedAway)
	return strings.TrimSuffix(zeros.ReplaceAllString(text, ""), ", ")
}

// zeros are the numbers that are 0.
var zeros = regexp.MustCompile(`\b0 [a-z ]+(, )?`)

// word is a{env=prod}=x, a!Internal, a or -a.
var word = regexp.MustCompile(`^(-?)([^{=!]+)(?:\{([^}]*)\})?(?:=(.*)|!(.*))?$`)

// change adds one change of the control plane's store.
func (p *player) change(tx *controlplane.Tx, words []string) {
	typeURL := typeOf(p.t, words[1])
	for _, text := range words[2:] {
		w := word.FindStringSubmatch(text)
		name, parameters := fullName(w[2]), pairs(w[3])
		m := &discoverypb.Resource{Name: name, DynamicParameters: parameters, Resource: bodyOf(p.t, typeURL, name, w[4])}
		switch words[0] {
		case "set":
			if w[5] != "" {
				tx.SetVariantError(typeURL, name, parameters, codeOf(p.t, w[5]))
				continue
			}
		case "private":
			m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true}
		case "expiring":
			m.Ttl = durationpb.New(time.Minute)
		case "renew":
			tx.Renew(typeURL, name, parameters)
			continue
		case "delete":
			tx.DeleteVariant(typeURL, name, parameters)
			continue
		case "constrain":
			tx.SetDPDS(name, func(node *corepb.Node) (dynparam.ByType, error) {
				return dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.cluster.v3.Cluster": xdstest.Constraints("id=" + node.GetId())})
			})
			continue
		default:
			p.t.Fatalf("%q is no step", words)
		}
		r, err := controlplane.NewResource(m)
		xdstest.NoError(p.t, err)
		tx.SetResource(r)
	}
}
