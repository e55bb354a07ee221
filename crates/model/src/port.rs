use std::fmt;

/// A port with its transport: TCP and UDP have separate port spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The port number.
    pub number: u16,
    /// The transport protocol.
    pub transport: Transport,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Port {
    /// A TCP port.
    pub const fn tcp(number: u16) -> Self {
        Self {
            number,
            transport: Transport::Tcp,
        }
    }

    /// A UDP port.
    pub const fn udp(number: u16) -> Self {
        Self {
            number,
            transport: Transport::Udp,
        }
    }

    /// This port plus `offset`, with the same transport; `None` above 65535.
    pub fn checked_add(self, offset: u16) -> Option<Self> {
        let number = self.number.checked_add(offset)?;
        Some(Self { number, ..self })
    }
}

/// `80` for TCP, `53/udp` for UDP.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Tcp => self.number.fmt(f),
            Transport::Udp => write!(f, "{}/udp", self.number),
        }
    }
}
