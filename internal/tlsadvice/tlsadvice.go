// Package tlsadvice words the errors of connections, and tells by them that a server probably wants TLS, or a certificate, of a
// client that does not offer it.
//
// A server with TLS closes a connection in plaintext without a word. So does a server that restarts, or a proxy before one that
// is down; but a server that wants TLS never does anything else. What to do about it depends on who decides on the security of the
// connection, and is for the caller to say.
package tlsadvice

import (
	"strconv"
	"strings"
)

// enough is how many attempts in a row have to end before the server has spoken.
const enough = 3

// Reason returns the text of an error without what gRPC puts around the reason why a connection failed.
func Reason(text string) string {
	before, after, _ := strings.Cut(text, "connection error: desc = ")
	quoted, err := strconv.QuotedPrefix(after)
	if err != nil {
		return text
	}
	reason, _ := strconv.Unquote(quoted) // which it is
	reason = strings.TrimPrefix(strings.TrimPrefix(reason, "transport: "), "Error while dialing: ")
	return before + reason + after[len(quoted):]
}

// Server is what connections in plaintext, or without a certificate, have shown of one server. The zero Server has had none. It is
// not safe for concurrent use.
type Server struct {
	spoke bool // once at least
	ended int  // attempts in a row that ended before the server had spoken
}

// Ready notes that a connection was established.
func (s *Server) Ready() { s.spoke, s.ended = true, 0 }

// Failed notes that an attempt to connect has failed, and returns what that says of the server, as a clause for the error, or "".
func (s *Server) Failed(err error) string {
	text := err.Error()
	if strings.Contains(text, "tls: certificate required") {
		return "the server wants a certificate of the client (mTLS)"
	}
	if !strings.Contains(text, "server preface") || !strings.Contains(text, "EOF") && !strings.Contains(text, "connection reset by peer") {
		s.ended = 0
		return ""
	}
	s.ended++
	if s.spoke || s.ended < enough {
		return ""
	}
	return "the server ended each connection before it spoke HTTP/2, as one does that wants TLS or mTLS"
}
