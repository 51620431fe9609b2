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
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// TestTranscripts follows the transcripts of testdata/transcripts, whose README.txt describes them.
func TestTranscripts(t *testing.T) {
	golden.Scripts(t, "testdata/transcripts/*.txt", 40, func(t testing.TB) func(string) string {
		p := &player{store: NewStore(), quotas: newQuotas(bounds.Streams, nil), live: map[string]*Demand{}, decided: map[string]string{}, moments: map[string][]string{}, nonces: map[string]bool{}}
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
	clients []*playedClient
	live    map[string]*Demand
	quotas  *quotas
	// decided has the constraints of single clients, or errors in place of them, by client.
	decided map[string]string
	// moments has the steps that are carried out during others, by when.
	moments map[string][]string
	// held is open while sources do not return.
	held  chan struct{}
	notes []string
	// nonces are those of all responses.
	nonces map[string]bool
}

// playerSetup are the options of a transcript.
type playerSetup struct {
	// opts are those of each client, without functions.
	opts Options
	// accepts says that the clients announce that they accept envelopes, explains that there is Options.Absence, and hears that there
	// are OnACK and OnNACK.
	accepts, explains, hears bool
	names                    int
	denied                   string
	moved                    dynparam.ByType
	// agent and feature are those of the clients, and resumes the version that they have of each type.
	agent, feature, resumes string
}

// begin sets up the store and opens streams.
func (p *player) begin(t testing.TB, options string) {
	opts := &p.setup.opts
	opts.MaxResponseSize, p.setup.names = 1<<20, 1000
	for _, option := range strings.Fields(options) {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "reports":
			opts.NotFoundErrors = true
		case "wraps":
			opts.WrapResources, p.setup.accepts = value != "client", value != "server"
		case "hears":
			p.setup.hears = true
		case "agent":
			p.setup.agent = value
		case "feature":
			p.setup.feature = value
		case "resumes":
			p.setup.resumes = value
		case "names":
			_, err := fmt.Sscan(value, &p.setup.names)
			xdstest.NoError(t, err)
		case "versions":
			limit := int64(0)
			_, err := fmt.Sscan(value, &limit)
			xdstest.NoError(t, err)
			p.quotas.set(ofVersions, limit)
		case "binds":
			opts.BindLocators = true
		case "explains":
			p.setup.explains = true
		case "keeps":
			var err error
			opts.RemovalDelay, err = time.ParseDuration(value)
			xdstest.NoError(t, err)
		case "size":
			_, err := fmt.Sscan(value, &opts.MaxResponseSize)
			xdstest.NoError(t, err)
		case "denies":
			p.setup.denied = value
		case "demand":
			p.store.OnDemand(longType(t, value), p.demanded)
		case "some":
			_, err := fmt.Sscan(value, &p.store.pace.due)
			xdstest.NoError(t, err)
		case "SotW", "delta":
			p.open(t, name)
		default:
			t.Fatalf("%q is no option", option)
		}
	}
}

// await has a step carried out once during a later one: while a name is authorized, while constraints are decided, while the first
// response is sent, or in a turn of others.
func (p *player) await(t testing.TB, moment, step string) {
	p.moments[moment] = append(p.moments[moment], step)
	number, inTurn := strings.CutPrefix(moment, "turn ")
	if !inTurn {
		return
	}
	left := 0
	_, err := fmt.Sscan(number, &left)
	xdstest.NoError(t, err)
	p.store.pace.turn, p.store.pace.between = 0, func() {
		if left--; left == 0 {
			p.reach(t, moment)
		}
	}
}

// reach carries out the steps that wait for a moment.
func (p *player) reach(t testing.TB, moment string) bool {
	steps := p.moments[moment]
	delete(p.moments, moment)
	for _, step := range steps {
		p.do(t, step)
	}
	return len(steps) > 0
}

// demanded is the source of types on demand.
func (p *player) demanded(begun, ended []*Demand) {
	p.wait()
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

// wait waits while the source is held.
func (p *player) wait() {
	if p.held != nil {
		<-p.held
	}
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
	if moment, later, ok := strings.Cut(strings.TrimPrefix(step, "during "), ": "); ok && strings.HasPrefix(step, "during ") {
		p.await(t, moment, later)
		return
	}
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
		p.open(t, rest[0])
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
	case "complain", "echo":
		for _, c := range who {
			to := playedResponse{typeURL: longType(t, rest[0])}
			if verb == "echo" {
				to = c.lastOf(to.typeURL)
			}
			p.request(t, c, to, verb == "complain", rest[1:])
		}
	case "push":
		p.push(t)
	case "hold":
		p.held = make(chan struct{})
	case "release":
		close(p.held)
	case "deny":
		p.setup.denied = rest[0]
		for _, c := range who {
			c.reauthorize()
		}
	case "stored":
		p.notes = append(p.notes, p.stored(longType(t, rest[0]), rest[1]))
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
	if verb == "clear" {
		tx.DeleteAll(typeURL)
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
				p.reach(t, "decide")
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

// stored returns what is stored under a name, and the version of the store.
func (p *player) stored(typeURL, name string) string {
	var texts []string
	for _, r := range p.store.Variants(typeURL, name) {
		texts = append(texts, string(r.Any().GetValue()))
	}
	if st := p.store.Error(typeURL, name); st != nil {
		texts = append(texts, fmt.Sprintf("%s!%v", name, st.Code()))
	}
	if r := p.store.Get(typeURL, name); r != nil && !slices.Contains(texts, string(r.Any().GetValue())) {
		texts = append(texts, "and "+string(r.Any().GetValue()))
	}
	return fmt.Sprintf("%s in version %d, of %d", strings.Join(texts, " "), p.store.Version(), len(p.store.Resources(typeURL)))
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
		versioned := len(words) > 1 && strings.HasPrefix(words[1], "version=")
		if versioned {
			m.Version = words[1]
		}
		r, err := NewResource(m)
		xdstest.NoError(t, err)
		if len(words) == 1 || alone || versioned {
			tx.Answer(d, r)
		} else {
			tx.AnswerBeside(d, r, statusOfWord(t, words[1]))
		}
	}
}

// push has each client sent one part of what is due.
func (p *player) push(t testing.TB) {
	for i, c := range p.clients {
		for _, text := range c.sendPart(t, p) {
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
		for _, text := range c.due(t, p) {
			outcome = append(outcome, p.by(i)+text)
		}
	}
	return outcome
}
