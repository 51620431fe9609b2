package builtin_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	udpapb "github.com/cncf/xds/go/udpa/type/v1"
	xdspb "github.com/cncf/xds/go/xds/type/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/httpfilter"
	_ "github.com/dynxds/dynxds/httpfilter/builtin"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestFilters has what filters say of configurations, and what becomes of RPCs. The files in testdata say what the steps are.
func TestFilters(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", 0, func(t testing.TB) func(string) string { return (&script{TB: t}).step })
}

// script is a filter with a configuration, and a backend behind it.
type script struct {
	testing.TB
	message          protoreflect.MessageType
	instance         httpfilter.ClientInstance
	config, override httpfilter.Config
	interceptor      httpfilter.Interceptor // of these; nil: not made yet, or none
	backend          backend
}

func (s *script) step(line string) string {
	verb, text, _ := strings.Cut(line, " ")
	switch verb {
	case "type":
		var err error
		s.message, err = protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("envoy.extensions.filters.http." + text))
		xdstest.NoError(s, err)
		return ""
	case "side":
		return side(httpfilter.Get(typeurl.Prefix + "envoy.extensions." + text))
	case "bytes", "bytes-override": // that are no message
		return s.read(map[string]string{"bytes": "config", "bytes-override": "override"}[verb], &anypb.Any{TypeUrl: text, Value: []byte{0xff}})
	case "struct", "struct-override":
		return s.readStruct(map[string]string{"struct": "config", "struct-override": "override"}[verb], text)
	case "backend":
		s.backend = backend{header: pairs(text)}
		return ""
	case "rpc":
		return s.rpc(text)
	case "rpcs", "shares":
		return s.rpcs(verb == "shares", text)
	case "sleep":
		d, err := time.ParseDuration(text)
		xdstest.NoError(s, err)
		time.Sleep(d) // of the bubble
		return ""
	}
	text = repeated.ReplaceAllStringFunc(text, func(use string) string {
		m := repeated.FindStringSubmatch(use)
		n, err := strconv.Atoi(m[1])
		xdstest.NoError(s, err)
		return strings.Repeat(m[2]+" ", n)
	})
	pb := s.message.New().Interface()
	xdstest.NoError(s, prototext.Unmarshal([]byte(text), pb))
	return s.read(verb, xdsmsg.Any(pb))
}

// repeated is a field that is there many times: "1001×(field)".
var repeated = regexp.MustCompile(`(\d+)×\(([^()]*)\)`)

func (s *script) url() string { return typeurl.Prefix + string(s.message.Descriptor().FullName()) }

// side says whether clients run a filter, and whether a chain ends with it.
func side(f httpfilter.Filter) string {
	_, client := f.(httpfilter.ClientFilter)
	switch {
	case f.IsTerminal():
		return "terminal"
	case client:
		return "client"
	default:
		return "server"
	}
}

// read has the filter read a configuration or, if verb is "override", one for a route.
func (s *script) read(verb string, a *anypb.Any) string {
	name, _, err := httpfilter.TypedStruct(a)
	xdstest.NoError(s, err)
	filter := httpfilter.Get(name)
	s.interceptor = nil
	var c httpfilter.Config
	if verb == "override" {
		parser, ok := filter.(httpfilter.OverrideParser)
		if !ok {
			return "the filter takes no overrides"
		}
		c, err = parser.ParseOverride(a)
		s.override = c
	} else {
		c, err = filter.ParseConfig(a)
		s.config, s.override = c, nil
		if client, ok := filter.(httpfilter.ClientFilter); ok {
			s.instance = client.NewClientInstance(httpfilter.ClientInstanceInfo{})
		}
	}
	if err != nil {
		return strings.Join(strings.Fields(err.Error()), " ") // protobuf varies its spaces
	}
	return "accepted"
}

// readStruct is read for a TypedStruct in each of its forms, of which the filter says the same.
func (s *script) readStruct(verb, text string) (said string) {
	value := new(structpb.Struct)
	xdstest.NoError(s, protojson.Unmarshal([]byte(text), value))
	for i, m := range []proto.Message{
		&xdspb.TypedStruct{TypeUrl: s.url(), Value: value}, &udpapb.TypedStruct{TypeUrl: s.url(), Value: value},
		&xdspb.TypedStruct{TypeUrl: strings.TrimPrefix(s.url(), typeurl.Prefix), Value: value},
	} {
		if got := s.read(verb, xdsmsg.Any(m)); i == 0 {
			said = got
		} else {
			xdstest.Equal(s, fmt.Sprintf("what is said of form %d of %s", i, text), said, got)
		}
	}
	return said
}

// rpcs makes many RPCs, "N METHOD …", and says of how many, or of which share in steps of a quarter, what becomes.
func (s *script) rpcs(shares bool, text string) string {
	times, text, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(times)
	xdstest.NoError(s, err)
	counts := map[string]int{}
	for range n {
		counts[s.rpc(text)]++
	}
	var all []string
	for said, count := range counts {
		if shares {
			all = append(all, fmt.Sprintf("%d%%: %s", (count*4+n/2)/n*25, said))
		} else {
			all = append(all, fmt.Sprintf("%d: %s", count, said))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " | ")
}

// rpc makes an RPC, "METHOD NAME=VALUE …" with metadata, and says what becomes of it.
func (s *script) rpc(text string) string {
	if s.interceptor == nil {
		i, err := s.instance.ClientInterceptor(s.config, s.override)
		xdstest.NoError(s, err)
		if s.interceptor = i; i == nil {
			return "no interceptor"
		}
	}
	method, text, _ := strings.Cut(text, " ")
	md := pairs(text)
	ctx := s.Context()
	if values := md["timeout"]; values != nil {
		timeout, err := time.ParseDuration(values[0])
		xdstest.NoError(s, err)
		short, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = short
		delete(md, "timeout")
	}
	s.backend.rpc, s.backend.sent = nil, nil
	begin := time.Now()
	stream, err := httpfilter.NewNext(&s.backend, s.interceptor).NewStream(metadata.NewOutgoingContext(ctx, md), &httpfilter.RPC{Method: method, Cluster: "a"})
	var said []string
	add := func(what, text string) {
		if text != "" {
			said = append(said, strings.TrimSpace(what+" "+text))
		}
	}
	if took := time.Since(begin); took > 0 {
		add("after", took.String())
	}
	if rpc := s.backend.rpc; rpc != nil {
		said = append(said, strings.TrimSpace("sent "+show(s.backend.sent)))
		if rpc.HostOverride != nil {
			add("to", strings.Join(append(rpc.HostOverride.Addresses, "any of "+rpc.Cluster), ", or "))
		}
	}
	if err == nil {
		header, _ := stream.Header()
		add("header", show(header))
		err = stream.RecvMsg(nil)
		add("trailer", show(stream.Trailer()))
	}
	if err == io.EOF {
		err = nil
	}
	if s.backend.rpc == nil || err != nil {
		add(status.Code(err).String(), status.Convert(err).Message()+map[bool]string{true: "without the backend"}[status.Code(err) == codes.OK])
	}
	return strings.Join(said, "; ")
}

// backend is the end of a chain. "trailers-only=", "picks=ADDRESS" and "route=CLUSTER" among its headers say how it answers, where it is and what
// the route has.
type backend struct {
	header, sent metadata.MD
	rpc          *httpfilter.RPC
}

func (b *backend) RouteHas(cluster string) bool { return slices.Contains(b.header["route"], cluster) }

func (b *backend) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	b.rpc = rpc
	b.sent, _ = metadata.FromOutgoingContext(ctx)
	if o := rpc.HostOverride; o != nil {
		o.SetCluster(rpc.Cluster)
		if picks := b.header["picks"]; picks != nil {
			o.SetHost(&picks[0])
		}
	}
	md := b.header.Copy()
	for _, name := range []string{"trailers-only", "picks", "route"} {
		delete(md, name)
	}
	if b.header["trailers-only"] != nil {
		return httpfilter.EndedStream(ctx, nil, md), nil
	}
	return &answer{httpfilter.EndedStream(ctx, nil, nil), md}, nil
}

type answer struct {
	grpc.ClientStream
	header metadata.MD
}

func (a *answer) Header() (metadata.MD, error) { return a.header, nil }

var word = regexp.MustCompile(`(?:[^ ']|'[^']*')+`)

// pairs reads "name=value name='two words'". A text in angle brackets is in base64.
func pairs(text string) metadata.MD {
	md := metadata.MD{}
	for _, pair := range word.FindAllString(text, -1) {
		name, value, _ := strings.Cut(strings.ReplaceAll(pair, "'", ""), "=")
		md.Append(name, regexp.MustCompile(`<[^>]*>`).ReplaceAllStringFunc(value, func(s string) string {
			return base64.StdEncoding.EncodeToString([]byte(strings.Trim(s, "<>")))
		}))
	}
	return md
}

// show is the inverse of pairs, for base64 of what has a port.
func show(md metadata.MD) string {
	var all []string
	for name, values := range md {
		for _, value := range values {
			value = regexp.MustCompile(`[A-Za-z0-9+/]{8,}=*`).ReplaceAllStringFunc(value, func(s string) string {
				if text, err := base64.StdEncoding.DecodeString(s); err == nil && strings.Contains(string(text), ":80") {
					return "<" + string(text) + ">"
				}
				return s
			})
			if strings.Contains(value, " ") {
				value = "'" + value + "'"
			}
			all = append(all, name+"="+value)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
