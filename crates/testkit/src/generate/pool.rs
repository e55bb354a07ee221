//! Pools of names and strings.

/// Gateways, by namespace and name.
pub const GATEWAYS: [(&str, &str); 3] = [("one", "web"), ("one", "other"), ("two", "web")];

/// Listener ports.
pub const PORTS: [u16; 4] = [80, 443, 8080, 8443];

pub(super) const NAMESPACES: &[&str] = &["one", "two", "three"];
pub(super) const TIMES: &[&str] = &["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"];
pub(super) const CLASSES: &[&str] = &["sesame", "sesame-two", "refused", "foreign", "missing"];
pub(super) const LISTENER_SETS: &[&str] = &["set1", "set2"];
/// Ports that translation may assign, and one that it doesn't.
pub(super) const ASSIGNED: &[u32] = &[20_000, 20_001, 29_999, 30_000];
pub(super) const LISTENERS: &[&str] = &["a", "b", "c", "d", "e.f"];
pub(super) const ROUTES: &[&str] = &["r1", "r2", "r3", "r4", "r5"];
pub(super) const SERVICES: &[&str] = &["s1", "s2", "s3"];
/// Names of XBackends.
pub const XBACKENDS: &[&str] = &["s1", "x1", "x2"];
/// The names of the Services for these XBackends.
pub const POD_SERVICES: &[&str] = &["s1-r8mtfs988p", "x1-gy4wgj31c8", "x2-fpqkypgnw9"];
pub(super) const SECRETS: &[&str] = &["c1", "c2", "c3"];
pub(super) const SERVICE_PORTS: &[u32] = &[80, 80, 80, 443, 8080];
pub(super) const PORT_NAMES: &[&str] = &["web", "other", "x-1"];

pub(super) const DOMAINS: &[&str] = &[
    "example.com",
    "*.example.com",
    "a.example.com",
    "b.a.example.com",
    "*.a.example.com",
    "example.net",
    "*.net",
    "localhost",
    "*.com",
    "xn--bcher-kva.example.com",
    "127.0.0.1",
    "0",
];

/// Hosts of Ingresses and HTTPProxies, without IP addresses, which they don't allow.
pub(super) const HOSTNAMES: &[&str] = &[
    "example.com",
    "a.example.com",
    "*.example.com",
    "b.a.example.com",
    "*.net",
    "localhost",
];

pub(super) const HOSTS: &[&str] = &[
    "example.com",
    "a.example.com",
    "localhost",
    "10.0.0.1",
    "xn--bcher-kva.example.com",
    "0",
];

pub(super) const METHODS: &[&str] = &[
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];
pub(super) const ODD_METHODS: &[&str] = &["PURGE", "get", "", "G ET", "ü", "\n", "%"];

pub(super) const HEADERS: &[&str] = &[
    "x-a",
    "X-A",
    "x-b",
    "x_c",
    "Content-Type",
    "cookie",
    "accept",
];
pub(super) const ODD_HEADERS: &[&str] = &[
    "host",
    "Host",
    "content-length",
    "connection",
    "te",
    "upgrade",
    "transfer-encoding",
    "set-cookie",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-envoy-upstream-rq-timeout-ms",
    "x-envoy-retry-on",
    "x-request-id",
    "location",
    "server",
    "date",
    "!#$%&'*+-.^_`|~",
    "%a%",
    "0",
    LONG_NAME,
];
/// The API doesn't restrict the names of headers to remove.
pub(super) const REMOVED_HEADERS: &[&str] =
    &["", ":path", ":authority", "a b", "ü", "x-a\n", "x:y"];

pub(super) const VALUES: &[&str] = &["v", "V", "a b", "1", "text/html; q=0.5", "a,b"];
pub(super) const ODD_VALUES: &[&str] = &[
    "%",
    "%%",
    "%REQ(host)%",
    "%DOWNSTREAM_REMOTE_ADDRESS%",
    "100% of %s",
    "%%%",
    "ü☃𝄞",
    " before",
    "behind ",
    "\t",
    "\"quoted\\\"",
    "{{x}}",
    "*",
    "\u{feff}",
    "\u{2028}",
    LONG_VALUE,
];
/// Query parameter values may be any text.
pub(super) const ODD_QUERY_VALUES: &[&str] = &["\0", "\n", "\u{7f}", "a&b=c", "%20", "ü☃"];

pub(super) const PATHS: &[&str] = &["/", "/a", "/a/", "/a/b", "/A", "/a/b/c", "/b"];
pub(super) const ODD_PATHS: &[&str] = &[
    "/a%20b",
    "/a;v=1",
    "/~u/@x",
    "/$&'()*+,;=:",
    "/.well-known/x",
    "/..a",
    "/a.b/",
    "/%25",
    LONG_PATH,
];

pub(super) const REPLACEMENTS: &[&str] = &["/", "/x", "/x/", "/x/y", ""];
pub(super) const ODD_REPLACEMENTS: &[&str] = &[
    "x",
    "//",
    "/x//",
    "/x y",
    "/x?q=1",
    "/x#f",
    "/\\1",
    "/\\0\\",
    "/%",
    "/%41",
    "/ü☃",
    "/$1",
    "/*",
    "/{a}",
    "/%REQ(host)%",
    "/\n",
    "/\0",
    "..",
    "/../x",
    LONG_PATH,
];

pub(super) const DURATIONS: &[&str] = &["0s", "1ms", "500ms", "10s", "1h30m"];
pub(super) const ODD_DURATIONS: &[&str] =
    &["0h", "99999h99999h99999h99999h", "00001ms", "1s1s1s1s"];

pub(super) const ORIGINS: &[&str] = &[
    "https://example.com",
    "http://a.example.com:8080",
    "https://*.example.com",
    "http://*.example.com:8443",
];
pub(super) const ODD_ORIGINS: &[&str] = &[
    "https://*",
    "http://*:80",
    "https://EXAMPLE.com",
    "https://localhost",
    "http://1.2.3.4",
    "https://a-.b",
    "https://x:99999",
];

pub(super) const REGEXES: &[&str] = &[
    "/v[0-9]+/.*",
    ".*",
    "/a|/b",
    "[^/]+",
    "(?i)abc",
    r"\d{2,4}-\w+",
    "^/a$",
    "[[:alpha:]]+",
];

/// Parts of longer expressions.
pub(super) const REGEX_PARTS: &[&str] = &[
    "a", ".", r"\w", "[a-c]", r"\pL", "[^/]", "é", "(?i:b)", "^", "$",
];

pub(super) const REPEATS: &[&str] = &["*", "+", "?", "{2}", "{3,}", "{1,9}", "{40}", "*?", "{500}"];

/// Each is near a limit of a regex engine.
pub(super) const ODD_REGEXES: &[&str] = &[
    "",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\\",
    "|",
    "()",
    "(?:)",
    "(?i)",
    "a|",
    "a**",
    "a*?",
    "a+?+",
    "a*+",
    "*a",
    "^*",
    "$+",
    "a{0}",
    "a{,3}",
    "a{2,1}",
    "a{1000}",
    "a{1001}",
    "(a{100}){11}",
    "(a{30}){30}",
    "((a{10}){10}){10}",
    "((a{10}){10}){11}",
    "(?:a{2}){501}",
    "(a*){1000}",
    "(a{5,}){300}",
    ".{1000}",
    r"\pL{200}",
    r"(?i)\pL{200}",
    r"[^a]{900}",
    r"(?i:[a-z]{1000})",
    r"\PL{249}",
    r"[^\x{100}-\x{10ffff}]{900}",
    "(?=x)",
    "(?!x)",
    "(?<=x)",
    "(?>x)",
    "(?#x)",
    r"(a)\1",
    "(?P<n>a)",
    "(?<n>a)",
    "(?P<n>a)(?P<n>b)",
    "(?P<é>a)",
    "(?P<n.m>a)",
    "(?P<n[0]>a)",
    "(?P<_1>a)",
    "[a&&b]",
    "[a--b]",
    "[a~~b]",
    "[a[b]]",
    "[a-]",
    "[-a]",
    "[]a]",
    "[^]a]",
    "[z-a]",
    "[a-z-9]",
    "[[:word:]]",
    "[[:^alpha:]]",
    "[[:nope:]]",
    r"[\d\w]",
    r"[\b]",
    r"[\pL]",
    r"[\]\[\-]",
    r"\b",
    r"\B",
    r"\b{start}",
    r"\<a\>",
    r"\A\z",
    r"\Z",
    r"\C",
    r"\K",
    r"\h",
    r"\R",
    r"\X",
    r"\Qa.b\E",
    r"\x41",
    r"\x{41}",
    r"\x{10ffff}",
    r"\x{110000}",
    r"\u0041",
    r"\U00000041",
    r"\u{41}",
    r"\101",
    r"\0",
    r"\a\f\t\n\r\v",
    r"\e",
    r"\/\-\%\@\&\~\#",
    r"\ ",
    r"\pN",
    r"\p{N}",
    r"\p{^N}",
    r"\P{Lu}",
    r"\p{Greek}",
    r"\p{greek}",
    r"\p{Script=Greek}",
    r"\p{sc=Greek}",
    r"\p{Letter}",
    r"\p{Alphabetic}",
    r"\p{L&}",
    r"\p{LC}",
    r"\p{Any}",
    r"\p{ASCII}",
    r"\p{Emoji}",
    r"\p{Nope}",
    r"\p{Vithkuqi}",
    r"\p{Cn}",
    r"\p{scx=Greek}",
    r"\p{age=3.0}",
    r"\pé",
    "(?s).",
    "(?U)a+",
    "(?-i)a",
    "(?i-s:a)",
    "(?m)^a$",
    "(?x) a",
    "(?R)a",
    "(?u)a",
    "(?-u)a",
    r"(?-u)\xff",
    "(?is-mU)a",
    "(?ii)a",
    "(?)a",
    "(?-)a",
    "é+",
    "☃{3}",
    "\0",
    "a\nb",
    "\u{7f}",
    LONG_PATH,
];

/// A header name of maximum length.
const LONG_NAME: &str = match core::str::from_utf8(&[b'n'; 256]) {
    Ok(text) => text,
    Err(_) => "",
};

/// A header value of maximum length.
const LONG_VALUE: &str = match core::str::from_utf8(&[b'v'; 4096]) {
    Ok(text) => text,
    Err(_) => "",
};

/// A path of maximum length.
const LONG_PATH: &str = match core::str::from_utf8(&LONG_PATH_BYTES) {
    Ok(text) => text,
    Err(_) => "",
};

const LONG_PATH_BYTES: [u8; 1024] = {
    let mut bytes = [b'p'; 1024];
    bytes[0] = b'/';
    bytes
};
