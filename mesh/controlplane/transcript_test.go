package controlplane

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// TestTranscripts follows the transcripts of testdata/transcripts, whose README.txt describes them.
func TestTranscripts(t *testing.T) {
	golden.Scripts(t, "testdata/transcripts/*.txt", 40, func(t testing.TB) func(string) string {
		p := &player{store: NewStore(), live: map[string]*Demand{}, decided: map[string]string{}}
		t.Cleanup(func() {
			for _, c := range p.clients {
				c.end()
			}
		})
		return func(line string) string {
			if options, begins := strings.CutPrefix(line, "@ "); begins {
				p.begin(t, options)
				return ""
			}
			step, waits := strings.CutSuffix(line, " &")
			if p.do(t, step); waits {
				return ""
			}
			return strings.Join(p.outcome(t), " | ")
		}
	})
}

// player carries out a transcript: a store, and clients of it without goroutines.
type player struct {
	store   *Store
	setup   playerSetup
	node    nodeConstraints
	clients []*playedClient
	live    map[string]*Demand
	// decided has the constraints of single clients, or errors in place of them, by client.
	decided map[string]string
	notes   []string
}

// playerSetup are the options of a transcript.
type playerSetup struct {
	reports, wraps, explains bool
	keeps                    time.Duration
	size                     int
	denied                   string
	moved                    dynparam.ByType
}

// playedClient is one stream, with the responses that it was sent.
type playedClient struct {
	*stream
	sotw  *sotw
	delta *delta
	sent  []playedResponse
	// ended says that the end of the stream was noted.
	ended bool
	// accepted are the versions that the client has accepted, by type.
	accepted map[string]string
	// contents are those of the resources that the client has received, by version.
	contents map[string]string
}

type playedResponse struct{ typeURL, nonce, version string }

// begin sets up the store and opens streams.
func (p *player) begin(t testing.TB, options string) {
	for _, option := range strings.Fields(options) {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "reports":
			p.setup.reports = true
		case "wraps":
			p.setup.wraps = true
		case "binds":
			p.node.bind = true
		case "explains":
			p.setup.explains = true
		case "keeps":
			var err error
			p.setup.keeps, err = time.ParseDuration(value)
			xdstest.NoError(t, err)
		case "size":
			_, err := fmt.Sscan(value, &p.setup.size)
			xdstest.NoError(t, err)
		case "denies":
			p.setup.denied = value
		case "demand":
			p.store.OnDemand(longType(t, value), p.demanded)
		case "some":
			_, err := fmt.Sscan(value, &p.store.pace.due)
			xdstest.NoError(t, err)
		case "SotW", "delta":
			p.open(name)
		default:
			t.Fatalf("%q is no option", option)
		}
	}
}

func (p *player) open(protocol string) {
	c := &playedClient{accepted: map[string]string{}, contents: map[string]string{}}
	p.node.of = func(*corepb.Node) dynparam.ByType { return p.setup.moved }
	limits := usage{names: 1000, bytes: 1 << 16}
	id := uint64(len(p.clients) + 1)
	if protocol == "SotW" {
		c.sotw = newSotW(newStream(id, ProtocolSotW, p.store, &p.node, &streamUsage{limits: limits}, nil), p.setup.wraps, p.setup.reports)
		c.stream = c.sotw.stream
	} else {
		size := p.setup.size
		if size == 0 {
			size = 1 << 20
		}
		c.delta = newDelta(newStream(id, ProtocolDelta, p.store, &p.node, &streamUsage{limits: limits}, nil), size)
		c.stream = c.delta.stream
	}
	c.retention.delay = p.setup.keeps
	if p.setup.denied != "" {
		c.hooks.allow = func(_ *corepb.Node, _, name string) error {
			if name == fullName(p.setup.denied) {
				return status.Error(codes.PermissionDenied, "denied")
			}
			return nil
		}
	}
	if p.setup.explains {
		c.hooks.absence = func(_, name string, _ func(string) bool) string { return "no " + name }
	}
	p.clients = append(p.clients, c)
}

func (c *playedClient) end() {
	c.stream.end().release(c.stream)
}

// demanded is the source of types on demand.
func (p *player) demanded(begun, ended []*Demand) {
	var notes []string
	for _, d := range ended {
		notes = append(notes, "ends "+p.textOfDemand(d))
		delete(p.live, p.textOfDemand(d))
	}
	for _, d := range begun {
		notes = append(notes, "asks "+p.textOfDemand(d))
		p.live[p.textOfDemand(d)] = d
	}
	slices.Sort(notes)
	p.notes = append(p.notes, notes...)
}

func (p *player) textOfDemand(d *Demand) string {
	text := shortType(d.TypeURL) + " " + shortName(d.Name) + textOfConstraints(d.Constraints)
	if d.Stream != 0 {
		text += fmt.Sprint("@", d.Stream)
	}
	return text
}

// do carries out one step. A number before it says which client does it; without one all do.
func (p *player) do(t testing.TB, step string) {
	who := p.clients
	if n, rest, ok := strings.Cut(step, ": "); ok {
		i := 0
		_, err := fmt.Sscan(n, &i)
		xdstest.NoError(t, err)
		who, step = p.clients[i-1:i], rest
	}
	words := strings.Fields(step)
	verb, rest := words[0], words[1:]
	switch verb {
	case "open":
		p.open(rest[0])
	case "end":
		for _, c := range who {
			c.end()
		}
	case "send":
		for _, c := range who {
			p.request(t, c, playedResponse{typeURL: longType(t, rest[0])}, false, rest[1:])
		}
	case "ack", "nack":
		n := 0
		_, err := fmt.Sscan(rest[0], &n)
		xdstest.NoError(t, err)
		for _, c := range who {
			if n > len(c.sent) {
				t.Fatalf("%q: there were %d responses", step, len(c.sent))
			}
			p.request(t, c, c.sent[n-1], verb == "nack", rest[1:])
		}
	case "push":
		p.push(t)
	case "decide":
		p.decided[rest[0]] = rest[1]
		return
	case "refresh":
		p.store.RefreshDPDS(rest[0], func(node *corepb.Node) bool { return len(rest) == 1 || node.GetId() == rest[1] })
	case "choices":
		p.notes = append(p.notes, fmt.Sprint(p.store.ambiguous.Load(), " are ambiguous"))
	case "wait":
		d, err := time.ParseDuration(rest[0])
		xdstest.NoError(t, err)
		time.Sleep(d)
	case "move":
		byType, err := dynparam.NewByType(map[string]dynparam.Constraints{"*": constraintsOfWord(t, rest[0])})
		xdstest.NoError(t, err)
		p.setup.moved = byType
		for _, c := range p.clients {
			if _, greeted := c.greeting(); greeted {
				c.constrain()
			}
		}
	case "memory":
		for _, c := range who {
			for _, short := range rest {
				sub := c.subs[longType(t, short)]
				p.notes = append(p.notes, fmt.Sprintf("%s: %d due, %d known", short, sub.items.count(), known(sub)))
			}
		}
	case "status":
		for _, c := range who {
			p.notes = append(p.notes, c.statusText(longType(t, rest[0])))
		}
	default:
		update(t, p.store, func(tx *Tx) {
			for change := range strings.SplitSeq(step, "; ") {
				p.change(t, tx, strings.Fields(change))
			}
		})
	}
}

// change adds one change to an update.
func (p *player) change(t testing.TB, tx *Tx, words []string) {
	verb, typeURL := words[0], longType(t, words[1])
	if verb == "answer" {
		p.answer(t, tx, words[1], words[2], words[3:])
		return
	}
	for _, word := range words[2:] {
		name, parameters, content := splitWord(word)
		switch {
		case verb == "set" && strings.HasPrefix(content, "!") && parameters == nil:
			tx.SetError(typeURL, name, statusOfWord(t, content))
		case verb == "set" && strings.HasPrefix(content, "!"):
			tx.SetVariantError(typeURL, name, parameters, statusOfWord(t, content))
		case verb == "set":
			tx.SetNamed(name, parameters, &anypb.Any{TypeUrl: typeURL, Value: []byte(word)})
		case verb == "delete" && parameters == nil:
			tx.Delete(typeURL, name)
		case verb == "delete":
			tx.DeleteVariant(typeURL, name, parameters)
		case verb == "expiring":
			r, err := NewResource(&discoverypb.Resource{
				Name: name, DynamicParameters: parameters, Resource: &anypb.Any{TypeUrl: typeURL, Value: []byte(word)}, Ttl: durationpb.New(time.Minute),
			})
			xdstest.NoError(t, err)
			tx.SetResource(r)
		case verb == "renew":
			tx.Renew(typeURL, name, parameters)
		case verb == "constrain":
			tx.SetDPDS(name, func(node *corepb.Node) (dynparam.ByType, error) {
				word := cmp.Or(p.decided[node.GetId()], content[1:])
				if strings.HasPrefix(word, "!") {
					return dynparam.ByType{}, statusOfWord(t, word).Err()
				}
				return dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.listener.v3.Listener": constraintsOfWord(t, word)})
			})
		default:
			t.Fatalf("%q is no step", verb)
		}
	}
}

// answer answers a demand: a=x, a=x and !Code beside it, a=x that is private, !Code, or nothing.
func (p *player) answer(t testing.TB, tx *Tx, short, demand string, words []string) {
	d := p.live[short+" "+demand]
	switch {
	case d == nil:
		t.Fatalf("there is no demand for %s %s among %v", short, demand, p.live)
	case len(words) == 0:
		tx.Answer(d, nil)
	case strings.HasPrefix(words[0], "!"):
		tx.AnswerError(d, statusOfWord(t, words[0]))
	default:
		name, parameters, _ := splitWord(words[0])
		m := &discoverypb.Resource{Name: name, DynamicParameters: parameters, Resource: &anypb.Any{TypeUrl: d.TypeURL, Value: []byte(words[0])}}
		alone := len(words) > 1 && words[1] == "private"
		if alone {
			m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true}
		}
		r, err := NewResource(m)
		xdstest.NoError(t, err)
		if len(words) == 1 || alone {
			tx.Answer(d, r)
		} else {
			tx.AnswerBeside(d, r, statusOfWord(t, words[1]))
		}
	}
}

// push has each client sent one part of what is due.
func (p *player) push(t testing.TB) {
	for i, c := range p.clients {
		for _, text := range c.push(t) {
			p.notes = append(p.notes, p.by(i)+text)
		}
	}
}

// by is a mark of a client before what it is sent, if there are several.
func (p *player) by(i int) string {
	if len(p.clients) == 1 {
		return ""
	}
	return fmt.Sprint(i+1, ": ")
}

// outcome has the clients sent what is due, and returns that after what the source was told.
func (p *player) outcome(t testing.TB) []string {
	synctest.Wait()
	outcome := p.notes
	p.notes = nil
	for i, c := range p.clients {
		for _, text := range c.due(t) {
			outcome = append(outcome, p.by(i)+text)
		}
	}
	return outcome
}

// due returns what the client is sent.
func (c *playedClient) due(t testing.TB) (texts []string) {
	select {
	case <-c.retention.timer.C:
		c.endRetention()
	default:
	}
	if err := c.failed(); err != nil {
		if c.ended {
			return nil
		}
		c.ended = true
		return []string{fmt.Sprintf("the stream ends: %v: %s", status.Code(err), status.Convert(err).Message())}
	}
	for len(c.wake) > 0 {
		texts = append(texts, c.push(t)...)
	}
	return texts
}

func (c *playedClient) push(t testing.TB) (texts []string) {
	select {
	case <-c.wake:
	default:
		return nil
	}
	var err error
	if c.sotw != nil {
		err = c.sotw.push(func(r *discoverypb.DiscoveryResponse) error {
			texts = append(texts, c.readSotW(t, r))
			return nil
		})
	} else {
		err = c.delta.push(func(r *discoverypb.DeltaDiscoveryResponse) error {
			texts = append(texts, c.readDelta(t, r))
			return nil
		})
	}
	xdstest.NoError(t, err)
	return texts
}

// request sends a request, which answers a response unless that has no nonce.
func (p *player) request(t testing.TB, c *playedClient, to playedResponse, rejected bool, words []string) {
	t.Helper()
	var detail *statuspb.Status
	if rejected {
		detail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: "no"}
	} else if to.nonce != "" {
		c.accepted[to.typeURL] = to.version
	}
	var names, leaves []string
	var locators, leftLocators []*discoverypb.ResourceLocator
	has := map[string]string{}
	for _, word := range words {
		if claim, ok := strings.CutPrefix(word, "has:"); ok {
			name, _, version := p.claimed(t, to.typeURL, claim)
			has[name] = version
			continue
		}
		left := strings.HasPrefix(word, "-")
		name, constraints, located := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(word, "-"), "}"), "{")
		locator := &discoverypb.ResourceLocator{Name: fullName(name), DynamicParameterConstraints: constraintsOfWord(t, constraints).ToProto()}
		switch {
		case located && left:
			leftLocators = append(leftLocators, locator)
		case located:
			locators = append(locators, locator)
		case left:
			leaves = append(leaves, fullName(name))
		default:
			names = append(names, fullName(name))
		}
	}
	node := &corepb.Node{Id: fmt.Sprint(c.id)}
	if p.setup.wraps {
		node.ClientFeatures = []string{wrapFeature}
	}
	var err error
	if c.sotw != nil {
		err = c.sotw.handleRequest(&discoverypb.DiscoveryRequest{
			Node: node, TypeUrl: to.typeURL, ResourceNames: names, ResourceLocators: locators,
			VersionInfo: c.accepted[to.typeURL], ResponseNonce: to.nonce, ErrorDetail: detail,
		})
	} else {
		err = c.delta.handleRequest(&discoverypb.DeltaDiscoveryRequest{
			Node: node, TypeUrl: to.typeURL, ResourceNamesSubscribe: names, ResourceNamesUnsubscribe: leaves,
			ResourceLocatorsSubscribe: locators, ResourceLocatorsUnsubscribe: leftLocators,
			InitialResourceVersions: has, ResponseNonce: to.nonce, ErrorDetail: detail,
		})
	}
	if err != nil {
		c.fail(err)
	}
}

// claimed reads a=x, which is the version of a resource with these bytes, and a, which is another one.
func (p *player) claimed(t testing.TB, typeURL, claim string) (name, content, version string) {
	name, parameters, content := splitWord(claim)
	if content == "" {
		return name, content, "another"
	}
	of, err := dynparam.NewParameters(parameters)
	xdstest.NoError(t, err)
	r, err := newResource(name, of, &anypb.Any{TypeUrl: typeURL, Value: []byte(claim)})
	xdstest.NoError(t, err)
	return name, content, r.version
}

// received notes a response, and returns its text.
func (c *playedClient) received(typeURL, nonce, version string, texts []string, errs []*discoverypb.ResourceError, t testing.TB) string {
	c.sent = append(c.sent, playedResponse{typeURL, nonce, version})
	var failed []string
	for _, e := range errs {
		text := textOfName(t, e.GetResourceName()) + "!" + codes.Code(e.GetErrorDetail().GetCode()).String()
		if strings.HasPrefix(e.GetErrorDetail().GetMessage(), "no ") {
			text += "/explained"
		}
		failed = append(failed, text)
	}
	slices.Sort(failed)
	texts = append(texts, failed...)
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", len(c.sent), shortType(typeURL), strings.Join(texts, " ")), ": ")
}

// resource notes the version of a resource, and returns its text.
func (c *playedClient) resource(m *discoverypb.Resource) string {
	c.contents[m.GetVersion()] = textOfResource(m)
	return c.contents[m.GetVersion()]
}

func (c *playedClient) readSotW(t testing.TB, r *discoverypb.DiscoveryResponse) string {
	var texts []string
	for _, packed := range r.GetResources() {
		if packed.GetTypeUrl() != typeurl.Wrapper {
			texts = append(texts, string(packed.GetValue()))
			continue
		}
		m := new(discoverypb.Resource)
		xdstest.NoError(t, proto.Unmarshal(packed.GetValue(), m))
		texts = append(texts, c.resource(m))
	}
	return c.received(r.GetTypeUrl(), r.GetNonce(), r.GetVersionInfo(), texts, r.GetResourceErrors(), t)
}

func (c *playedClient) readDelta(t testing.TB, r *discoverypb.DeltaDiscoveryResponse) string {
	var texts []string
	for _, m := range r.GetResources() {
		texts = append(texts, c.resource(m))
	}
	for _, name := range r.GetRemovedResources() {
		texts = append(texts, "-"+shortName(name))
	}
	for _, name := range r.GetRemovedResourceNames() {
		texts = append(texts, "-"+textOfName(t, name))
	}
	return c.received(r.GetTypeUrl(), r.GetNonce(), r.GetSystemVersionInfo(), texts, r.GetResourceErrors(), t)
}

// statusText is what Server.Clients says of a type.
func (c *playedClient) statusText(typeURL string) string {
	for _, of := range c.status(1000).Types {
		if of.TypeURL != typeURL {
			continue
		}
		text := fmt.Sprintf("%q %v", of.Names, of.Reply)
		if of.Wildcard {
			text += ", wildcard"
		}
		for _, r := range of.Sent {
			text += ", sent " + cmp.Or(c.contents[r.Version], "another version of "+r.Name)
		}
		if of.ACKedVersion != "" {
			text += ", accepted version " + of.ACKedVersion
		}
		if of.NACK != nil {
			text += fmt.Sprintf(", rejected version %s, still %v", of.NACK.Version, of.Refusing)
		}
		for _, e := range of.Errors {
			text += fmt.Sprintf(", %s!%v", shortName(e.Name), e.Err.Code())
		}
		if len(of.Kept) > 0 {
			text += fmt.Sprintf(", kept %q", of.Kept)
		}
		return text
	}
	return "not asked for"
}
