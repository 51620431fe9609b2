package admission

import "encoding/binary"

// Of HTTP/2 (RFC 9113, sections 4.1 and 6): the sizes of the client's preface and of the header of a frame, types of frames, and flags.
const (
	prefaceSize = 24
	headerSize  = 9

	frameData, frameHeaders, frameReset, frameSettings = 0, 1, 3, 4

	flagEndStream, flagPadded = 0x1, 0x8
)

// frames follows the frames of one direction of a connection.
type frames struct {
	// on is called when a frame begins, without a part, and with each part of its payload; the parts of a DATA frame are without padding.
	// end is called when a frame is over that ends its stream.
	on  func(kind byte, stream uint32, part []byte)
	end func(stream uint32)

	header [headerSize]byte
	// have is how much there is of the header, and rest how much of the payload is to come, of which the last bytes are padding.
	have, rest, padding int
	// padded is set while the length of the padding, the first byte of the payload, is to come.
	padded bool
}

// follow goes on with the next bytes, whatever their boundaries.
func (f *frames) follow(b []byte) {
	for len(b) > 0 {
		var part []byte
		if f.have < headerSize {
			n := copy(f.header[f.have:], b)
			if f.have, b = f.have+n, b[n:]; f.have < headerSize {
				return
			}
			f.rest = int(binary.BigEndian.Uint32(f.header[:]) >> 8)
			f.padded, f.padding = f.header[3] == frameData && f.header[4]&flagPadded != 0, 0
		} else {
			part = b[:min(f.rest, len(b))]
			f.rest, b = f.rest-len(part), b[len(part):]
			if f.padded {
				f.padded, f.padding, part = false, int(part[0]), part[1:]
			}
			part = part[:max(0, min(len(part), len(part)+f.rest-f.padding))]
		}
		kind, flags, stream := f.header[3], f.header[4], binary.BigEndian.Uint32(f.header[5:])&^(1<<31)
		f.on(kind, stream, part)
		if f.rest > 0 {
			continue
		}
		if f.have = 0; kind == frameReset || kind <= frameHeaders && flags&flagEndStream != 0 {
			f.end(stream)
		}
	}
}
