package configselector_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// read reads a line of a script: what it is for, and words of the form key=value.
func (s *script) read(line string) {
	words := strings.Fields(line)
	rest := words[1:]
	switch words[0] {
	case "kinds":
		first, _, _ := strings.Cut(s.kind.name, " ")
		s.skipped = s.skipped || !slices.Contains(rest, first)
	case "app":
		s.skipped = s.skipped || s.kind.desc == nil
		for _, word := range rest {
			n := 1
			if times, repeated, ok := strings.Cut(word, "×"); ok {
				n, word = s.number(times), repeated
			}
			s.app = append(s.app, slices.Repeat([]string{word}, n)...)
		}
	case "retry":
		s.route.Retry = &s.policy
		s.each(rest, s.setPolicy)
	case "route":
		s.each(rest, s.setRoute)
	case "next":
		own := s.route
		s.route = toC()
		s.each(rest, s.setRoute)
		s.route, s.next = own, s.route
	case "filters":
		for _, word := range rest {
			s.filters = append(s.filters, s.filter(word))
		}
	case "override":
		overrides := xdsresource.FilterOverrides{}
		s.each(rest[1:], func(name, value string) { overrides[name] = override(value) })
		*map[string]*xdsresource.FilterOverrides{
			"host": &s.config.vh.Overrides, "route": &s.route.Overrides, "cluster": &s.route.Action.(*xdsresource.Forward).Clusters[0].Overrides,
		}[rest[0]] = overrides
	case "mirror":
		s.route.Mirrors = append(s.route.Mirrors, xdsresource.Mirror{Headers: edits("mirror", true, fmt.Sprint(len(s.route.Mirrors)))})
		s.each(rest, s.setMirror)
	case "mirrored":
		s.mirrored = rest[0]
	case "rpc":
		s.each(rest, s.setRPC)
	case "server":
		s.answers = nil
		for _, word := range rest {
			s.answers = append(s.answers, s.answer(word))
		}
	case "picker":
		s.picks = rest
	default:
		s.t.Fatalf("what is %q?", line)
	}
}

func (s *script) each(words []string, set func(key, value string)) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		set(key, value)
	}
}

func (s *script) setPolicy(key, value string) {
	p := &s.policy
	header := func() []matching.Header {
		name, want, _ := strings.Cut(value, ":")
		return []matching.Header{
			{Name: "x-never", Kind: matching.HeaderPresent},
			{Name: name, String: matching.NewString(matching.StringExact, want, false)},
		}
	}
	switch key {
	case "attempts":
		p.MaxAttempts = s.number(value)
	case "on":
		p.Codes = 0
		if value != "" {
			p.Codes = xdsresource.SetOf(s.code(value))
		}
	case "backoff":
		p.BaseBackoff = s.duration(value)
		p.MaxBackoff = p.BaseBackoff
	case "timeout":
		p.PerTryTimeout = s.duration(value)
	case "idle":
		p.PerTryIdleTimeout = s.duration(value)
	case "hedge":
		p.Hedges = true
	case "connect-failure":
		p.ConnectFailure = true
	case "no-response":
		p.NoResponse = true
	case "response":
		p.RetriableHeaders = header()
	case "request":
		p.RequestHeaders = header()
	case "hosts":
		p.PreviousHosts = s.number(value)
	default:
		s.t.Fatalf("a retry policy has no %q", key)
	}
}

func (s *script) setRoute(key, value string) {
	to := func() *xdsresource.WeightedCluster { return &s.route.Action.(*xdsresource.Forward).Clusters[0] }
	rewrite := func() *xdsresource.Rewrite {
		if s.route.Rewrite == nil {
			s.route.Rewrite = new(xdsresource.Rewrite)
		}
		return s.route.Rewrite
	}
	headers := func() *xdsresource.HeaderMutations {
		if s.route.Headers == nil {
			s.route.Headers = new(xdsresource.HeaderMutations)
		}
		return s.route.Headers
	}
	switch key {
	case "timeout":
		d := s.duration(value)
		s.route.MaxStreamDuration = &d
	case "prefix":
		s.route.Match.Path, rewrite().Prefix = "/s", value
	case "authority":
		rewrite().Authority = value
	case "authority-header":
		rewrite().AuthorityHeader = value
	case "request":
		headers().Request = edits(value, false, "route")
	case "response":
		headers().Response = edits(value, true, "route")
	case "answers":
		code, body, _ := strings.Cut(value, ":")
		s.route.Action = &xdsresource.DirectResponse{HTTPStatus: 403, Code: s.code(code), Body: body}
	case "redirect":
		host, path, _ := strings.Cut(value, "/")
		s.route.Action = &xdsresource.Redirect{HTTPStatus: 301, Code: codes.Unknown, Host: host}
		if path != "" {
			s.route.Action = &xdsresource.Redirect{HTTPStatus: 301, Code: codes.Unknown, Path: "/" + path}
		}
	case "cluster":
		to().Name = value
	case "path":
		s.route.Match.Path, s.route.Match.PathKind = value, matching.PathExact
	case "listener-timeout":
		s.listener = s.duration(value)
	case "unroutable":
		s.route.Action = &xdsresource.Unroutable{Reason: value}
	case "none":
		s.config.routes = []*xdsresource.Route{}
	case "cluster-header": // Another route has the cluster "c".
		*to() = xdsresource.WeightedCluster{Header: value, Weight: 1}
		s.config.routes = []*xdsresource.Route{s.route, toC()}
	case "cluster-request":
		to().Headers = &xdsresource.HeaderMutations{Request: edits(value, false, "cluster")}
	case "twin": // is for other RPCs, and shares the cluster, as decoded routes do
		twin := *s.route
		settings := *s.route.Settings
		twin.Settings = &settings
		twin.Match, twin.Overrides = matching.Route{Path: "/twin"}, xdsresource.FilterOverrides{"a": override(value)}
		s.config.routes = []*xdsresource.Route{s.route, &twin}
	case "also": // takes nearly all RPCs
		f := s.route.Action.(*xdsresource.Forward)
		f.Clusters = append(f.Clusters, xdsresource.WeightedCluster{Name: value, Weight: 1<<32 - 2})
	case "match":
		name, value, _ := strings.Cut(value, "=")
		s.route.Match.Further = &matching.Conditions{Headers: []matching.Header{{Name: name, String: matching.NewString(matching.StringExact, value, false)}}}
	case "removes":
		headers().Request = edits(value, true)
	case "auto-host":
		rewrite().AutoHost = true
	case "cluster-authority":
		to().Authority = value
	default:
		s.t.Fatalf("a route has no %q", key)
	}
}

func (s *script) setMirror(key, value string) {
	m := &s.route.Mirrors[len(s.route.Mirrors)-1]
	switch key {
	case "cluster":
		m.Cluster = value
	case "header":
		m.Header = value
	case "shadow":
		m.ShadowSuffix = true
	case "authority":
		m.Authority = value
	case "permillion":
		n := uint32(s.number(value))
		m.FractionPerMillion = &n
	default:
		s.t.Fatalf("a mirror has no %q", key)
	}
}

// codecs are those that an application may set.
var codecs = map[string]grpc.CallOption{
	"Proto": grpc.CallContentSubtype("Proto"), "unheard-of": grpc.CallContentSubtype("unheard-of"),
	"named": grpc.ForceCodecV2(namedCodec{encoding.GetCodecV2("proto")}), "older": grpc.ForceCodec(olderCodec{}),
}

// namedCodec is a codec of another name.
type namedCodec struct{ encoding.CodecV2 }

func (namedCodec) Name() string { return "Named" }

// olderCodec implements the older interface of codecs.
type olderCodec struct{}

func (olderCodec) Name() string                  { return "Older" }
func (olderCodec) Marshal(m any) ([]byte, error) { return proto.Marshal(m.(proto.Message)) }
func (olderCodec) Unmarshal(data []byte, m any) error {
	return proto.Unmarshal(data, m.(proto.Message))
}

// doubling is a codec that sends the value of a message twice.
type doubling struct{ encoding.CodecV2 }

func (c doubling) Marshal(m any) (mem.BufferSlice, error) {
	value := m.(*wrapperspb.BytesValue).GetValue()
	return c.CodecV2.Marshal(bytesOf(string(value) + string(value)))
}

func (s *script) setRPC(key, value string) {
	switch key {
	case "timeout":
		s.timeout = s.duration(value)
	case "cancel":
		s.cancel = s.duration(value)
	case "buffer":
		s.opts = append(s.opts, grpc.MaxRetryRPCBufferSize(s.number(value)))
	case "static":
		s.opts = append(s.opts, grpc.StaticMethod())
	case "ready":
		s.opts = append(s.opts, grpc.WaitForReady(true))
	case "codec":
		s.opts = append(s.opts, codecs[value])
	case "authority":
		s.opts = append(s.opts, grpc.CallAuthority(s.message(value)))
	case "request":
		s.requests = []string{s.message(value)}
	case "channel":
		s.config.authority = s.message(value)
	case "metadata":
		name, value, _ := strings.Cut(value, ":")
		s.metadata = append(s.metadata, name, value)
	case "served":
		s.peer = &peer.Peer{Addr: &net.TCPAddr{Port: 1}}
	case "trace":
		s.hooks = true
	case "silent":
		s.silent = true
	case "count":
		s.counted = true
	case "close":
		s.closes = true
	case "secure":
		s.config.secure = true
	case "max":
		s.config.dial = append(s.config.dial, grpc.WithMaxCallAttempts(s.number(value)))
	case "disabled":
		s.config.dial = append(s.config.dial, grpc.WithDisableRetry())
	default:
		s.t.Fatalf("an RPC has no %q", key)
	}
}

// answer parses "1.5s:UNAVAILABLE,header,key=value", each part of which may be missing.
func (s *script) answer(word string) (a answer) {
	if word == "hangs" {
		return answer{after: time.Hour}
	}
	if after, rest, ok := strings.Cut(word, ":"); ok {
		a.after, word = s.duration(after), rest
	}
	parts := strings.Split(word, ",")
	a.code = s.code(parts[0])
	for _, part := range parts[1:] {
		switch key, value, _ := strings.Cut(part, "="); key {
		case "header":
			a.header = true
		case "reads":
			a.reads = true
		case "talks":
			a.talks, a.after = true, time.Hour
		case "message":
			a.message = true
		case "lost":
			a.lost, a.after = true, time.Hour
		case "pushback":
			a.trailer = append(a.trailer, "grpc-retry-pushback-ms", value)
		default:
			a.trailer = append(a.trailer, key, value)
		}
	}
	return a
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	xdstest.NoError(s.t, err)
	return n
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	xdstest.NoError(s.t, err)
	return d
}

func (s *script) code(name string) (c codes.Code) {
	xdstest.NoError(s.t, c.UnmarshalJSON([]byte(strconv.Quote(name))))
	return c
}

// deafStream fails to send.
type deafStream struct{ grpc.ClientStream }

func (deafStream) SendMsg(any) error { return context.Canceled }

// failures are errors of filters.
var failures = map[string]error{
	"status": status.Error(codes.ResourceExhausted, "why"), "wrapped": fmt.Errorf("filter: %w", status.Error(codes.Aborted, "why")),
	"context": context.DeadlineExceeded, "plain": errors.New("why"), "nothing": nil,
}

// filter returns the filter that a word like "name:verb=value" describes. One without a verb appends its name to the header "via".
func (s *script) filter(word string) httpfilter.Instance {
	name, rest, _ := strings.Cut(word, ":")
	verb, value, _ := strings.Cut(rest, "=")
	send := func(ctx context.Context, next httpfilter.Next, rpc *httpfilter.RPC) {
		other, err := next.NewStream(ctx, rpc)
		xdstest.NoError(s.t, errors.Join(err, httpfilter.Exchange(other, bytesOf("other"), bytesOf(""))))
	}
	switch verb {
	case "broken":
		return brokenFilter(name)
	case "merges", "off":
		in := merging(name, nil)
		in.Disabled = verb == "off"
		return in
	}
	return filterOf(name, func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		extra := rpc.Clone()
		switch verb {
		case "":
			ctx = metadata.AppendToOutgoingContext(ctx, "via", name)
		case "fails":
			return nil, failures[value]
		case "answers":
			return httpfilter.EndedStream(ctx, status.Error(s.code(value), "why"), metadata.Pairs("k", "v")), nil
		case "sets":
			if rpc.Method != "/s/m" || rpc.Cluster != "c" || rpc.StreamDesc != s.kind.desc {
				s.t.Errorf("the filter sees %+v", rpc)
			}
			rpc.Method, rpc.Authority = "/t/n", value
		case "authority":
			rpc.Authority = value
		case "to":
			rpc.Cluster = value
		case "doubles":
			rpc.AddOptions(grpc.ForceCodecV2(doubling{encoding.GetCodecV2("proto")}))
		case "binds":
			s.bound = new(httpfilter.HostOverride)
			rpc.HostOverride = s.bound
			if next.RouteHas(value) {
				rpc.Cluster = value
			}
		case "asks":
			s.asks = true
			rpc.AddOptions(grpc.Header(&s.asked.header), grpc.Trailer(&s.asked.trailer), grpc.OnFinish(func(err error) {
				s.locked(func() { s.asked.finished = append(s.asked.finished, err) })
			}))
		case "twice":
			first, err := next.NewStream(ctx, rpc)
			send(ctx, next, rpc)
			return first, err
		case "first": // another RPC, a clone
			extra.Method = value
			send(ctx, next, extra)
		case "many": // clones at once
			var all sync.WaitGroup
			for range s.number(value) {
				all.Go(func() { send(ctx, next, rpc.Clone()) })
			}
			all.Wait()
		case "late":
			time.AfterFunc(s.duration(value), func() { send(context.WithoutCancel(ctx), next, extra) })
		}
		stream, err := next.NewStream(ctx, rpc)
		if err != nil {
			return nil, err
		}
		switch verb {
		case "uses":
			for what := range strings.SplitSeq(value, ",") {
				switch what {
				case "sends":
					s.note("sends: %v", stream.SendMsg(bytesOf("")))
				case "receives":
					s.note("receives: %v", stream.RecvMsg(bytesOf("")))
				case "looks":
					header, err := stream.Header()
					_, known := peer.FromContext(stream.Context())
					s.note("header %v, trailer %v, peer %v, %v", header["attempt"], stream.Trailer()["attempt"], known, err)
				}
			}
			return nil, failures["status"]
		case "wraps":
			stream = struct{ grpc.ClientStream }{stream}
		case "deaf":
			stream = deafStream{stream}
		case "edits":
			stream = httpfilter.EditResponse(stream,
				func(md metadata.MD) { md.Set("h", "edited") }, func(md metadata.MD, only bool) { md.Set("t", fmt.Sprint("edited ", only)) })
		}
		return stream, nil
	})
}

// brokenFilter is a filter that cannot be configured.
func brokenFilter(name string) httpfilter.Instance {
	return httpfilter.Instance{Name: name, Filter: &testFilter{typeURL: "type.googleapis.com/test." + name, build: func(string) httpfilter.ClientInstance {
		return instanceFunc(func(_, _ httpfilter.Config) (httpfilter.Interceptor, error) {
			return nil, errors.New("cannot be merged")
		})
	}}}
}
