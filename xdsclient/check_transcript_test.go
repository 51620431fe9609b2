package xdsclient

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/explore"
	"github.com/dynxds/dynxds/internal/xdstest"
)

var checkPathText = flag.String("check.path", "", "a path that TestCheck printed: TestCheckPath writes it as a transcript of what the client does now")

// TestCheckPath prints the path of -check.path.
func TestCheckPath(t *testing.T) {
	if *checkPathText == "" {
		t.Skip("needs -check.path")
	}
	checkSilent.Store(true)
	defer checkSilent.Store(false)
	name, rest, _ := strings.Cut(*checkPathText, ": ")
	scope, text, _ := strings.Cut(rest, ": ")
	for _, way := range checkWays() {
		if way.name != name {
			continue
		}
		way.prepare(t)
		way.scope = checkScopes(way)[0]
		explore.Override(&way.scope, scope)
		synctest.Test(t, func(t *testing.T) {
			fault, transcript := newCheckEnv(t, way).retell(parseActions(text))
			fmt.Print(transcript)
			if fault != "" {
				t.Error(fault)
			}
		})
	}
}

// attributes are what a transcript says of how a client without a connection speaks; see transcriptTest.way.
func (way *checkWay) attributes() (lines []string) {
	lines = []string{"@ over SotW", "@ direct"}
	if way.delta {
		lines[0] = "@ over delta"
	}
	if features := way.features(); features != nil {
		lines = append(lines, "@ servers "+strings.Join(features, " "))
	}
	if !way.delta && !way.full {
		lines = append(lines, "@ changes")
	}
	return lines
}

// features are those of the server, but for delta.
func (way *checkWay) features() (list []string) {
	if !way.keeps {
		list = append(list, "fail_on_data_errors")
	}
	if way.locators {
		list = append(list, "dynamic_parameter_constraints")
	}
	return list
}

// pathText is what -check.path reads.
func (way *checkWay) pathText(path []checkAction) string {
	s := &way.scope
	text := fmt.Sprintf("%s: held=%s start=%s:", way.name, s.held, s.start)
	for _, a := range path {
		text += " " + a.text()
	}
	return text
}

// transcriptOf returns a path as a transcript.
func (env *checkEnv) transcriptOf(path []checkAction) string {
	_, text := env.retell(path)
	return text
}

// text writes an action in short, and parseActions reads several.
func (a checkAction) text() string { return fmt.Sprintf("%d.%d.%d.%d", a.verb, a.n, a.to, a.side) }

func parseActions(text string) (list []checkAction) {
	for _, word := range strings.Fields(text) {
		part := strings.Split(word, ".")
		number := func(i int) int { n, _ := strconv.Atoi(part[i]); return n }
		list = append(list, checkAction{checkVerb(number(0)), int8(number(1)), checkContent(number(2)), int8(number(3))})
	}
	return list
}

// retell goes a path until silence. It returns what is wrong with it, or "", and the path as a transcript: what the
// client sees of it, and what it does.
func (env *checkEnv) retell(actions []checkAction) (fault, text string) {
	x := env.newTrial(new(stepList))
	for _, a := range actions {
		if x.Do(a); x.Fault() != "" {
			break
		}
	}
	if x.Fault() == "" {
		x.Settle()
	}
	x.End()
	lines := env.way.attributes()
	if x.Fault() != "" {
		lines = append(lines, "# "+x.Fault())
	}
	if env.way.fallback { // a transcript has one server without a connection
		return x.Fault(), strings.Join(append(lines, x.steps.lines()...), "\n") + "\n"
	}
	again := newDirectTranscript(env.t.(*testing.T), env.way)
	for _, step := range x.steps.lines() {
		again.do(again.c, step)
		synctest.Wait()
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s -> %s", step, strings.Join(again.events(), "; "))))
	}
	return x.Fault(), strings.Join(lines, "\n") + "\n"
}

// stepList collects the steps of a transcript. Those between which the client wrote no requests are one.
type stepList struct {
	steps []string
	// joined says that the client has not written since the last step.
	joined bool
	// responses counts, and versions has the first response with each version of a server.
	responses int
	versions  map[string]int
}

func (l *stepList) add(step string) {
	if l == nil {
		return
	}
	if n := len(l.steps); l.joined && n > 0 {
		l.steps[n-1] += ", " + step
	} else {
		l.steps = append(l.steps, step)
	}
	l.joined = true
}

// wrote notes that the client has written what was due.
func (l *stepList) wrote() {
	if l != nil {
		l.joined = false
	}
}

// send returns the step that the client reads a response.
func (l *stepList) send(r *checkResponse) string {
	if l == nil {
		return ""
	}
	l.responses++
	if l.versions == nil {
		l.versions = make(map[string]int)
	}
	number := strconv.Itoa(l.responses)
	if first := l.versions[r.version]; first == 0 {
		l.versions[r.version] = l.responses
	} else {
		number += "@" + strconv.Itoa(first)
	}
	return strings.TrimSpace("send " + strings.Repeat(checkEndpoints, r.kind) + number + " " + r.words)
}

func (l *stepList) lines() (lines []string) {
	for _, step := range l.steps {
		if strings.Contains(step, ", ") {
			step = "late " + step
		}
		lines = append(lines, step)
	}
	return lines
}

// directStream is a stream of a transcript without a connection: the client writes its requests when the
// transcript asks for them, so that they may be late.
type directStream struct {
	*trial
	began bool
}

func (s *directStream) context() context.Context { return context.Background() }
func (s *directStream) endWith(error)            { s.breakOff() }
func (s *directStream) sendMessage(m proto.Message) {
	s.receive(mustMarshal(s.t, m))
	if s.Fault() != "" {
		s.t.Fatal(s.Fault())
	}
}

// next implements transcriptStream.
func (s *directStream) next() *transcriptRequest {
	r, fresh, _ := s.ch.nextRequest()
	if r == nil {
		return nil
	}
	if !s.began {
		s.began, r.Node = true, s.config.Node
	}
	message, err := s.ch.dialect.Encode(r)
	xdstest.NoError(s.t, err)
	s.ch.sent(fresh)
	request, err := requestOf(s.t, s.way.delta, func(m any) error { return proto.Unmarshal(message, m.(proto.Message)) })
	xdstest.NoError(s.t, err)
	return request
}

// newDirectTranscript returns a transcript of a client without a connection.
func newDirectTranscript(t *testing.T, way *checkWay) *transcript {
	d := newCheckEnv(t, way).newBareTrial()
	t.Cleanup(d.End)
	x := &transcript{t: t, types: d.types, c: d.c, target: d.c, protocol: "sotw", direct: d}
	if way.delta {
		x.protocol = "delta"
	}
	x.watches, x.locators = make(map[string]*transcriptWatch), make(map[string]string)
	x.servers = []*transcriptServer{{script: &script{}, delta: way.delta}}
	x.opened()
	return x
}

// opened notes that there is a new stream.
func (x *transcript) opened() {
	s := x.servers[0]
	s.stream, s.last = &directStream{trial: x.direct}, make(map[string]*transcriptRequest)
}
