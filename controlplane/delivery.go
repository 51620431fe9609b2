package controlplane

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// maxNACKMessage bounds what is kept of a client's error, in bytes.
const maxNACKMessage = 4 << 10

// Reply is how a client took the last response of a type.
type Reply int

const (
	// ReplyNone: no response of the type was sent on the stream.
	ReplyNone Reply = iota
	// ReplyAwaited: the client has not answered the last response.
	ReplyAwaited
	// ReplyACK: the client accepted the last response.
	ReplyACK
	// ReplyNACK: the client rejected the last response.
	ReplyNACK
)

// String returns the state in lower case.
func (r Reply) String() string {
	switch r {
	case ReplyNone:
		return "nothing sent"
	case ReplyAwaited:
		return "awaited"
	case ReplyACK:
		return "ACK"
	case ReplyNACK:
		return "NACK"
	default:
		return "unknown"
	}
}

// NACK is a client's rejection of a response.
type NACK struct {
	// Version and Nonce are the rejected response's.
	Version, Nonce string
	// Err is the client's error_detail, cut at 4 KiB and without details.
	Err *status.Status
}

// delivery is what was last sent of a type on a stream, and the answer to it.
type delivery struct {
	version, nonce string
	reply          Reply
	ackedVersion   string
	nack           *NACK
}

func (d *delivery) sent(version, nonce string) {
	d.version, d.nonce, d.reply = version, nonce, ReplyAwaited
}

// stale says whether a request's nonce is that of an older response. An empty
// nonce answers no response; it is not stale, as the client may have asked
// before any response reached it, and no later request of it can be lost by
// heeding an earlier one.
func (d *delivery) stale(nonce string) bool {
	return nonce != "" && d.reply != ReplyNone && nonce != d.nonce
}

// answered takes in a request that carries a nonce which is not stale.
//
// An ACK is told from a change of the subscription after a NACK by the version:
// the latter repeats the nonce without the error, and carries the version that
// was accepted before. As that may be the rejected one too (one version can be
// sent in several responses), what was rejected once stays rejected.
func (d *delivery) answered(version, nonce string, detail *statuspb.Status) {
	if d.reply == ReplyNone || nonce != d.nonce {
		return
	}
	switch {
	case detail != nil:
		d.reply = ReplyNACK
		d.nack = &NACK{Version: d.version, Nonce: nonce, Err: shortStatus(detail)}
	case d.reply == ReplyAwaited && version == d.version:
		d.reply = ReplyACK
		d.ackedVersion = version
	}
}

func shortStatus(s *statuspb.Status) *status.Status {
	message := s.GetMessage()
	if len(message) > maxNACKMessage {
		message = strings.ToValidUTF8(message[:maxNACKMessage], "")
	}
	return status.New(codes.Code(s.GetCode()), message)
}
