package configselector_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// answer is how a server answers an attempt.
type answer struct {
	after   time.Duration
	code    codes.Code
	trailer []string
	header  bool // response headers are sent at once
	reads   bool // a message is received before
	talks   bool // messages are sent, and then nothing
	message bool // a message is sent before the status
	lost    bool // the connection is
}

// handle handles an RPC, or a mirror.
func (s *script) handle(_ int, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	md, _ := metadata.FromIncomingContext(stream.Context())
	line := method + " at " + md[":authority"][0]
	if len(line) > 100 {
		line = fmt.Sprint(len(line), " bytes")
	}
	for _, name := range []string{"via", "k", "q", "content-type"} {
		if md[name] != nil && md[name][0] != "application/grpc" {
			line += fmt.Sprintf(", %s: %s", name, strings.Join(md[name], " "))
		}
	}
	if md["mirror"] != nil {
		return s.mirror(md["mirror"][0]+" "+line, stream)
	}
	if d, ok := stream.Context().Deadline(); ok {
		line += fmt.Sprint(", until ", time.Until(d).Round(time.Second))
	}
	n := 0
	s.locked(func() {
		n = len(s.sent)
		previous := strings.Join(md["grpc-previous-rpc-attempts"], ",")
		s.sent = append(s.sent, strings.TrimSpace(fmt.Sprintf("%v %s", time.Since(s.begin).Round(10*ms), previous)))
		s.ends = append(s.ends, "")
		if s.route.Retry == nil || line != "/s/m at service" && !slices.Contains(s.got, line) {
			s.got = append(s.got, line)
		}
	})
	end := "answered"
	defer func() { s.locked(func() { s.ends[n] = end }) }()
	how := s.answers[min(n, len(s.answers)-1)]
	if how.code == codes.OK || how.header {
		_ = stream.SetHeader(metadata.Pairs(append(how.trailer, "attempt", fmt.Sprint(n))...))
	}
	stream.SetTrailer(metadata.Pairs(append(how.trailer, "attempt", fmt.Sprint(n))...))
	if how.reads {
		if err := stream.RecvMsg(bytesOf("")); err != nil {
			return err
		}
	}
	if how.header {
		_ = stream.SendHeader(nil)
	}
	if how.lost {
		s.w.disconnect()
	}
	for i := 0; how.talks && i < 4; i++ {
		time.Sleep(2 * time.Second)
		if err := stream.SendMsg(bytesOf("x")); err != nil {
			return err
		}
	}
	if how.message {
		_ = stream.SendMsg(bytesOf("x"))
	}
	select {
	case <-time.After(how.after):
	case <-stream.Context().Done():
		end = "canceled"
		return stream.Context().Err()
	}
	if how.code != codes.OK {
		return status.Error(how.code, fmt.Sprint("attempt ", n))
	}
	all, err := receiveAll(stream)
	return errors.Join(err, stream.SendMsg(bytesOf(fmt.Sprint(all, " by ", n))))
}

// mirror handles a mirror, and notes when it had the request, and when it has ended.
func (s *script) mirror(line string, stream grpc.ServerStream) error {
	begin := time.Now()
	after := func() time.Duration { return time.Since(begin).Round(time.Second) }
	defer func() {
		s.locked(func() { s.mirrors = append(s.mirrors, fmt.Sprintf("%s, ended after %v", line, after())) })
	}()
	if s.mirrored == "deaf" {
		<-stream.Context().Done()
		return nil
	}
	all, err := receiveAll(stream)
	if len(all) > 100 {
		all = fmt.Sprint(len(all), " bytes")
	}
	line += fmt.Sprintf(": %q after %v", all, after())
	switch s.mirrored {
	case "hangs":
		<-stream.Context().Done()
	case "fails":
		return status.Error(codes.Internal, "the mirror fails")
	case "floods":
		for ; err == nil; time.Sleep(10 * ms) {
			err = stream.SendMsg(bytesOf(strings.Repeat("x", 10000)))
		}
	case "talks": // for 3 s
		for range 3 {
			err = errors.Join(err, stream.SendMsg(bytesOf("x")))
			time.Sleep(time.Second)
		}
		line += fmt.Sprint(", context ", stream.Context().Err())
	}
	return errors.Join(err, stream.SendMsg(bytesOf("ignored")))
}
